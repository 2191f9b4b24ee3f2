package code

// The codes, by what they are about.
const (
	// Requests that are wrong whatever the repository contains.
	InvalidRequest       Code = "invalid_request"        // a header, parameter or field is wrong
	MalformedJSON        Code = "malformed_json"         // a body, or a line of it, is no JSON
	MalformedHTTP        Code = "malformed_http"         // a request line, header or framing is not read
	BodyIncomplete       Code = "body_incomplete"        // the body ended before its end
	UnknownGuard         Code = "unknown_guard"          // a guard is not known to the call
	InvalidCursor        Code = "invalid_cursor"         // a cursor is malformed, or of another listing
	InvalidRevision      Code = "invalid_revision"       // a revision is not taken, or ambiguous
	InvalidRefName       Code = "invalid_ref_name"       // a refname breaks a rule
	InvalidPath          Code = "invalid_path"           // a path, glob, extension or prefix is malformed
	InvalidPattern       Code = "invalid_pattern"        // a pattern is no regular expression
	InvalidLineRange     Code = "invalid_line_range"     // a range of lines selects none
	InvalidFileOperation Code = "invalid_file_operation" // a file operation of a commit cannot be done
	InvalidResolution    Code = "invalid_resolution"     // a resolution does not fit into the merge
	InvalidPatch         Code = "invalid_patch"          // a patch cannot be read
	EmptyPatch           Code = "empty_patch"            // a diff changes nothing
	PatchDoesNotApply    Code = "patch_does_not_apply"   // a patch does not apply to its target
	InvalidNotes         Code = "invalid_notes"          // a notes ref leads to no notes
	InvalidPack          Code = "invalid_pack"           // a pack is damaged
	InvalidObject        Code = "invalid_object"         // git would not take an object
	MomentInFuture       Code = "moment_in_future"       // a moment has not come
	AddressNotAllowed    Code = "address_not_allowed"    // the address of an upstream is refused
	NotEnabled           Code = "not_enabled"            // the organization has switched this off
	GitProtocolError     Code = "git_protocol_error"     // a client does not speak git's protocol

	// Tokens, and what they allow.
	TokenMissing           Code = "token_missing"            // there is no token
	TokenInvalid           Code = "token_invalid"            // a token is malformed, or no registered key signed it
	TokenExpired           Code = "token_expired"            // a token was valid once
	TokenNotYetValid       Code = "token_not_yet_valid"      // a token will be valid
	TokenRevoked           Code = "token_revoked"            // the key of a token was removed
	ScopeMissing           Code = "scope_missing"            // a token lacks a scope
	WrongRepository        Code = "wrong_repository"         // a token is for another repository, or for none
	InvalidPolicy          Code = "invalid_policy"           // a policy of a token is not understood
	PolicyDenied           Code = "policy_denied"            // a policy of the token forbids the change
	CommitUnsigned         Code = "commit_unsigned"          // the policy wants signatures
	CommitSignatureInvalid Code = "commit_signature_invalid" // no registered key made a signature
	ReadOnly               Code = "read_only"                // the past cannot be changed
	PushOnly               Code = "push_only"                // the remote for imports is not read
	OriginDenied           Code = "origin_denied"            // pages of its origin may not send the request
	TooManyRepositories    Code = "too_many_repositories"    // the organization has as many repositories as it may
	TooManyBadTokens       Code = "too_many_bad_tokens"      // an address has sent many bad tokens

	// What is missing.
	EndpointNotFound   Code = "endpoint_not_found"   // no call has that path
	MethodNotAllowed   Code = "method_not_allowed"   // the path has no such method
	RepositoryNotFound Code = "repository_not_found" // a repository does not exist, or was deleted
	RefNotFound        Code = "ref_not_found"        // a branch, tag or other ref does not exist
	CommitNotFound     Code = "commit_not_found"     // an ID or a revision leads to no commit
	ObjectNotFound     Code = "object_not_found"     // an object does not exist, or may not be read
	PathNotFound       Code = "path_not_found"       // a path is not in the tree
	NoteNotFound       Code = "note_not_found"       // a commit has no note
	CredentialNotFound Code = "credential_not_found" // a repository has no such credential
	BeforeCreation     Code = "before_creation"      // a moment is before the repository
	HistoryGone        Code = "history_gone"         // the history of a moment is not kept any more
	EventsGone         Code = "events_gone"          // events are not kept any more
	RepositoryPurged   Code = "repository_purged"    // a deleted repository is gone for good

	// What is in the way.
	TargetMoved          Code = "target_moved"           // a ref is not where the request expects it
	SourceMoved          Code = "source_moved"           // what is to be merged is not what was shown
	ResultChanged        Code = "result_changed"         // a merge does not come to what was shown
	RefsMoved            Code = "refs_moved"             // refs have moved since what is to be undone
	MergeConflict        Code = "merge_conflict"         // a merge, a cherry-pick or a revert conflicts
	EmptyPick            Code = "empty_pick"             // a picked commit would change nothing
	NoSuchConflict       Code = "no_such_conflict"       // a resolution is for a path that does not conflict
	EditMismatch         Code = "edit_mismatch"          // the text of an edit is not there that often
	RepositoryExists     Code = "repository_exists"      // a repository of that name exists
	RefExists            Code = "ref_exists"             // a branch or tag of that name exists
	NoteExists           Code = "note_exists"            // a commit has a note
	CredentialExists     Code = "credential_exists"      // a repository has a credential
	RefNameConflict      Code = "ref_name_conflict"      // a refname lies below another ref, or above it
	RepositoryDeleted    Code = "repository_deleted"     // a repository has been deleted already
	IsDefaultBranch      Code = "is_default_branch"      // the default branch stays
	IdempotencyKeyReused Code = "idempotency_key_reused" // a key was used for another request
	NoUpstream           Code = "no_upstream"            // a repository has no upstream
	DetachInProgress     Code = "detach_in_progress"     // a repository is being detached
	SyncStateMissing     Code = "sync_state_missing"     // the state of a sync is missing
	UpdateRefused        Code = "update_refused"         // an update of a push is refused; git alone sees it
	NotFastForward       Code = "not_fast_forward"       // a branch cannot be moved forward
	UnrelatedHistories   Code = "unrelated_histories"    // branches have no common ancestor
	GitHubAppMissing     Code = "github_app_missing"     // there is no GitHub App for the repository

	// Limits.
	BodyTooLarge         Code = "body_too_large"         // a body, line or chunk is too large
	ObjectTooLarge       Code = "object_too_large"       // an object, file or note is too large
	LimitExceeded        Code = "limit_exceeded"         // a limit of the server is exceeded
	RequestTooCostly     Code = "request_too_costly"     // a request takes too much computing or memory
	QuotaExceeded        Code = "quota_exceeded"         // a write would pass a quota
	URLTooLong           Code = "url_too_long"           // a URL is too long
	UnsupportedMediaType Code = "unsupported_media_type" // a body has another type or encoding
	TooManyCommits       Code = "too_many_commits"       // files were changed last by too many commits
	TooManyRequests      Code = "too_many_requests"      // the organization sends more requests than it may
	HeaderTooLarge       Code = "header_too_large"       // a header is too long

	// The server, and what it depends on.
	RequestTimeout         Code = "request_timeout"          // a request came too slowly
	Cancelled              Code = "cancelled"                // a request was cancelled
	Internal               Code = "internal"                 // the server failed
	Corrupt                Code = "corrupt"                  // stored data is damaged
	UpstreamDenied         Code = "upstream_denied"          // the upstream does not take the credential
	UpstreamNotFound       Code = "upstream_not_found"       // the upstream has no such repository
	UpstreamUnavailable    Code = "upstream_unavailable"     // the upstream cannot be reached
	UpstreamFailed         Code = "upstream_failed"          // the upstream answers what is of no use
	Busy                   Code = "busy"                     // there are too many requests, or other writers were first
	Unavailable            Code = "unavailable"              // the storage is away; the server starts or stops
	OutcomeUnknown         Code = "outcome_unknown"          // a write was made, or never will be
	Importing              Code = "importing"                // the first import still runs
	SequenceNotReached     Code = "sequence_not_reached"     // the repository is not yet where the request expects it
	NotConfigured          Code = "not_configured"           // the server has no key for stored credentials
	ShortOfDisk            Code = "short_of_disk"            // the disk is full
	Timeout                Code = "timeout"                  // the answer took too long
	HTTPVersionUnsupported Code = "http_version_unsupported" // another version than HTTP/1.1
)

var list = []Entry{
	{InvalidRequest, []int{400}, Never},
	{MalformedJSON, []int{400}, Never},
	{MalformedHTTP, []int{400}, Never},
	{BodyIncomplete, []int{400}, Later},
	{UnknownGuard, []int{400}, Never},
	{InvalidCursor, []int{400}, Never},
	{InvalidRevision, []int{400}, Never},
	{InvalidRefName, []int{400}, Never},
	{InvalidPath, []int{400}, Never},
	{InvalidPattern, []int{400}, Never},
	{InvalidLineRange, []int{400}, Never},
	{InvalidFileOperation, []int{400}, Never},
	{InvalidResolution, []int{400}, Never},
	{InvalidPatch, []int{400}, Never},
	{EmptyPatch, []int{400}, Never},
	{PatchDoesNotApply, []int{400}, Reread},
	{InvalidNotes, []int{400}, Never},
	{InvalidPack, []int{400}, Never},
	{InvalidObject, []int{400}, Never},
	{MomentInFuture, []int{400, 404}, Later},
	{AddressNotAllowed, []int{400}, Never},
	{NotEnabled, []int{400}, Never},
	{GitProtocolError, []int{400, 403}, Never},

	{TokenMissing, []int{401}, Never},
	{TokenInvalid, []int{401}, Never},
	{TokenExpired, []int{401}, Never},
	{TokenNotYetValid, []int{401}, Later},
	{TokenRevoked, []int{401}, Never},
	{ScopeMissing, []int{401, 403}, Never},
	{WrongRepository, []int{401, 403, 404}, Never},
	{InvalidPolicy, []int{400, 403}, Never},
	{PolicyDenied, []int{403}, Never},
	{CommitUnsigned, []int{403}, Never},
	{CommitSignatureInvalid, []int{403}, Never},
	{ReadOnly, []int{403}, Never},
	{PushOnly, []int{403}, Never},
	{OriginDenied, []int{403}, Never},
	{TooManyRepositories, []int{403}, Never},
	{TooManyBadTokens, []int{429}, Later},

	{EndpointNotFound, []int{404}, Never},
	{MethodNotAllowed, []int{405}, Never},
	{RepositoryNotFound, []int{404}, Never},
	{RefNotFound, []int{400, 404}, Never},
	{CommitNotFound, []int{404}, Never},
	{ObjectNotFound, []int{404}, Never},
	{PathNotFound, []int{404}, Never},
	{NoteNotFound, []int{404}, Never},
	{CredentialNotFound, []int{404}, Never},
	{BeforeCreation, []int{404, 410}, Never},
	{HistoryGone, []int{410}, Never},
	{EventsGone, []int{410}, Reread},
	{RepositoryPurged, []int{410}, Never},

	{TargetMoved, []int{409}, Reread},
	{SourceMoved, []int{409}, Reread},
	{ResultChanged, []int{409}, Reread},
	{RefsMoved, []int{409}, Reread},
	{MergeConflict, []int{409}, Reread},
	{EmptyPick, []int{409}, Never},
	{NoSuchConflict, []int{409}, Reread},
	{EditMismatch, []int{409}, Reread},
	{RepositoryExists, []int{409}, Never},
	{RefExists, []int{409}, Never},
	{NoteExists, []int{409}, Never},
	{CredentialExists, []int{409}, Never},
	{RefNameConflict, []int{409}, Never},
	{RepositoryDeleted, []int{409}, Never},
	{IsDefaultBranch, []int{409}, Never},
	{IdempotencyKeyReused, []int{409}, Never},
	{NoUpstream, []int{409}, Never},
	{DetachInProgress, []int{409}, Later},
	{SyncStateMissing, []int{409}, Never},
	{UpdateRefused, []int{409}, Never},
	{NotFastForward, []int{412}, Never},
	{UnrelatedHistories, []int{412}, Never},
	{GitHubAppMissing, []int{412}, Never},

	{BodyTooLarge, []int{413}, Never},
	{ObjectTooLarge, []int{413}, Never},
	{LimitExceeded, []int{413}, Never},
	{RequestTooCostly, []int{413}, Never},
	{QuotaExceeded, []int{413}, Never},
	{URLTooLong, []int{414}, Never},
	{UnsupportedMediaType, []int{415}, Never},
	{TooManyCommits, []int{429}, Never},
	{TooManyRequests, []int{429}, Later},
	{HeaderTooLarge, []int{431}, Never},

	{RequestTimeout, []int{408}, Later},
	{Cancelled, []int{408, 499, 503}, Later},
	{Internal, []int{500}, Never},
	{Corrupt, []int{500, 502}, Never},
	{UpstreamDenied, []int{502}, Never},
	{UpstreamNotFound, []int{502}, Never},
	{UpstreamUnavailable, []int{502}, Later},
	{UpstreamFailed, []int{502}, Never},
	{Busy, []int{503}, Later},
	{Unavailable, []int{503}, Later},
	{OutcomeUnknown, []int{503}, Later},
	{Importing, []int{503}, Later},
	{SequenceNotReached, []int{503}, Later},
	{NotConfigured, []int{503}, Never},
	{ShortOfDisk, []int{503, 507}, Later},
	{Timeout, []int{504}, Later},
	{HTTPVersionUnsupported, []int{505}, Never},
}
