package api

import (
	"net/http"

	"packhorse/api/auth"
	"packhorse/api/rest"
)

const (
	v1    = "/api/v1"
	named = namedPrefix + "{n}"

	commitPackMax = 24 << 30
	diffCommitMax = 256 << 20
	commitCosts   = 1 << 20  // memory of a commit's stream beside the budgets below
	metadataCosts = 4 << 20  // memory of a walk that traces some thousand files
	grepCosts     = 8 << 20  // memory of a page, and of files that are searched
	archiveCosts  = 8 << 20  // memory of blocks under way, and of read-ahead
	diffCosts     = 8 << 20  // memory of the files of a diff that are being compared or wait to be sent
	blameCosts    = 16 << 20 // memory of some versions of a file, and of the commits on the way
)

// Routes is the table of the API: docs/api.md, with the status for a missing scope.
func Routes(d *rest.Door) []Route {
	const (
		unauthorized = http.StatusUnauthorized
		forbidden    = http.StatusForbidden
	)
	return []Route{
		{
			Method: "GET", Path: v1 + "/repos", Named: "/api/repos",
			Scope: auth.OrgRead, Denied: unauthorized, Handler: d.Repositories, Org: true,
		},
		{
			Method: "POST", Path: v1 + "/repos", Named: "/api/repos",
			Scope: auth.RepoWrite, Denied: forbidden, Handler: d.CreateRepository,
			Creates: true,
		},
		{
			Method: "GET", Path: v1 + "/repos/usage", Named: named + "/usage",
			Scope: auth.GitRead, Denied: forbidden, Handler: d.Usage,
		},
		{
			Method: "GET", Path: v1 + "/repo", Named: named,
			Scope: auth.GitRead, Denied: forbidden, Handler: d.Repository,
		},
		{
			Method: "PATCH", Path: v1 + "/repo", Named: named,
			Scope: auth.RepoWrite, Denied: forbidden, Handler: d.ChangeRepository,
		},
		{
			Method: "DELETE", Path: v1 + "/repos/delete", Named: named,
			Scope: auth.RepoWrite, Denied: forbidden, Handler: d.DeleteRepository,
		},
		{
			Method: "POST", Path: v1 + "/repos/undelete", Named: named + "/undelete",
			Scope: auth.RepoWrite, Denied: forbidden, Handler: d.UndeleteRepository,
		},
		{
			Method: "DELETE", Path: v1 + "/repos/base", Named: named + "/base",
			Scope: auth.GitWrite, Denied: forbidden, Handler: d.Detach,
		},
		{
			Method: "POST", Path: v1 + "/repos/pull-upstream", Named: named + "/pull-upstream",
			Scope: auth.GitWrite, Denied: forbidden, Handler: d.PullUpstream,
		},

		{
			Method: "POST", Path: v1 + "/repos/git-credentials", Named: named + "/git-credentials",
			Scope: auth.RepoWrite, Denied: forbidden, Handler: d.CreateCredential, Org: true,
		},
		{
			Method: "PUT", Path: v1 + "/repos/git-credentials", Named: named + "/git-credentials/{id}",
			Scope: auth.RepoWrite, Denied: forbidden, Handler: d.UpdateCredential, Org: true,
		},
		{
			Method: "DELETE", Path: v1 + "/repos/git-credentials", Named: named + "/git-credentials/{id}",
			Scope: auth.RepoWrite, Denied: forbidden, Handler: d.DeleteCredential, Org: true,
		},

		{
			Method: "GET", Path: v1 + "/repos/branches", Named: named + "/branches",
			Scope: auth.GitRead, Denied: unauthorized, Handler: d.Branches,
		},
		{
			Method: "DELETE", Path: v1 + "/repos/branches", Named: named + "/branches",
			Scope: auth.GitWrite, Denied: unauthorized, Handler: d.DeleteBranch,
		},
		{
			Method: "POST", Path: v1 + "/repos/branches/create", Named: named + "/branches/create",
			Scope: auth.GitWrite, Denied: unauthorized, Handler: d.CreateBranch,
		},
		{
			Method: "GET", Path: v1 + "/repos/branch", Named: named + "/branch",
			Scope: auth.GitRead, Denied: forbidden, Handler: d.Branch,
		},
		{
			Method: "GET", Path: v1 + "/repos/tag", Named: named + "/tag",
			Scope: auth.GitRead, Denied: forbidden, Handler: d.Tag,
		},
		{
			Method: "GET", Path: v1 + "/repos/tags", Named: named + "/tags",
			Scope: auth.GitRead, Denied: forbidden, Handler: d.Tags,
		},
		{
			Method: "POST", Path: v1 + "/repos/tags", Named: named + "/tags",
			Scope: auth.GitWrite, Denied: forbidden, Handler: d.CreateTag,
		},
		{
			Method: "DELETE", Path: v1 + "/repos/tags", Named: named + "/tags/{name}",
			Scope: auth.GitWrite, Denied: forbidden, Handler: d.DeleteTag,
		},
		{
			Method: "GET", Path: v1 + "/repos/notes", Named: named + "/notes",
			Scope: auth.GitRead, Denied: unauthorized, Handler: d.Note,
		},
		{
			Method: "POST", Path: v1 + "/repos/notes", Named: named + "/notes",
			Scope: auth.GitWrite, Denied: unauthorized, Handler: d.AddNote,
		},
		{
			Method: "DELETE", Path: v1 + "/repos/notes", Named: named + "/notes",
			Scope: auth.GitWrite, Denied: unauthorized, Handler: d.DeleteNote,
		},
		{
			Method: "GET", Path: v1 + "/repos/notes/refs", Named: named + "/notes/refs",
			Scope: auth.GitRead, Denied: unauthorized, Handler: d.NotesRefs,
		},
		{
			Method: "GET", Path: v1 + "/repos/commits", Named: named + "/commits",
			Scope: auth.GitRead, Denied: unauthorized, Handler: d.Commits,
		},
		{
			Method: "POST", Path: v1 + "/repos/archive", Named: named + "/archive",
			Scope: auth.GitRead, Denied: forbidden, Handler: d.Archive,
			CostsBytes: archiveCosts,
		},
		{
			Method: "POST", Path: v1 + "/repos/grep", Named: named + "/grep",
			Scope: auth.GitRead, Denied: forbidden, Handler: d.Grep,
			Computes: true, CostsBytes: grepCosts,
		},
		{
			Method: "GET", Path: v1 + "/events", Named: "/api/events",
			Scope: auth.OrgRead, Denied: forbidden, Handler: d.OrgEvents, Org: true,
		},
		{
			Method: "GET", Path: v1 + "/repos/events", Named: named + "/events",
			Scope: auth.GitRead, Denied: forbidden, Handler: d.Events,
		},
		{
			Method: "GET", Path: v1 + "/repos/commit", Named: named + "/commit",
			Scope: auth.GitRead, Denied: forbidden, Handler: d.Commit,
		},
		{
			Method: "GET", Path: v1 + "/repos/diff", Named: named + "/diff",
			Scope: auth.GitRead, Denied: unauthorized, Handler: d.CommitDiff,
			Computes: true, CostsBytes: diffCosts,
		},
		{
			Method: "GET", Path: v1 + "/repos/branches/diff", Named: named + "/branches/diff",
			Scope: auth.GitRead, Denied: unauthorized, Handler: d.BranchDiff,
			Computes: true, CostsBytes: diffCosts,
		},
		{
			Method: "GET", Path: v1 + "/repos/files", Named: named + "/files",
			Scope: auth.GitRead, Denied: unauthorized, Handler: d.Files,
		},
		{
			Method: "POST", Path: v1 + "/repos/files/read", Named: named + "/files/read",
			Scope: auth.GitRead, Denied: forbidden, Handler: d.FilesRead,
			CostsBytes: archiveCosts,
		},
		{
			Method: "GET", Path: v1 + "/repos/files/metadata", Named: named + "/files/metadata",
			Scope: auth.GitRead, Denied: forbidden, Handler: d.FilesMetadata,
			Computes: true, CostsBytes: metadataCosts,
		},
		{
			Method: "GET", Path: v1 + "/repos/blame", Named: named + "/blame",
			Scope: auth.GitRead, Denied: forbidden, Handler: d.Blame,
			Computes: true, CostsBytes: blameCosts,
		},
		{
			Method: "GET", Path: v1 + "/repos/file", Named: named + "/file",
			Scope: auth.GitRead, Denied: forbidden, Handler: d.File,
		},
		{
			Method: "HEAD", Path: v1 + "/repos/file", Named: named + "/file",
			Scope: auth.GitRead, Denied: forbidden, Handler: d.File,
		},

		{
			Method: "POST", Path: v1 + "/repos/commit-pack", Named: named + "/commit-pack",
			Scope: auth.GitWrite, Denied: unauthorized, Handler: d.CommitPack,
			BodyMax: commitPackMax, Patient: true, CostsBytes: commitCosts,
		},
		{
			Method: "POST", Path: v1 + "/repos/diff-commit", Named: named + "/diff-commit",
			Scope: auth.GitWrite, Denied: unauthorized, Handler: d.DiffCommit,
			BodyMax: diffCommitMax, Patient: true, CostsBytes: 2 * commitCosts, // it keeps patches of up to 1 MiB
		},
		{
			Method: "POST", Path: v1 + "/repos/merge", Named: named + "/merge",
			Scope: auth.GitWrite, Denied: forbidden, Handler: d.Merge,
			Computes: true, CostsBytes: mergeCosts,
		},
		{
			Method: "GET", Path: v1 + "/repos/merge/preview", Named: named + "/merge/preview",
			Scope: auth.GitRead, Denied: forbidden, Handler: d.PreviewMerge,
			Computes: true, CostsBytes: mergeCosts,
		},
		{
			Method: "POST", Path: v1 + "/repos/cherry-pick", Named: named + "/cherry-pick",
			Scope: auth.GitWrite, Denied: forbidden, Handler: d.CherryPick,
			Computes: true, CostsBytes: mergeCosts,
		},
		{
			Method: "POST", Path: v1 + "/repos/revert", Named: named + "/revert",
			Scope: auth.GitWrite, Denied: forbidden, Handler: d.Revert,
			Computes: true, CostsBytes: mergeCosts,
		},
		{
			Method: "POST", Path: v1 + "/repos/land", Named: named + "/land",
			Scope: auth.GitWrite, Denied: forbidden, Handler: d.Land,
			Computes: true, CostsBytes: mergeCosts,
		},
		{
			Method: "POST", Path: v1 + "/repos/undo", Named: named + "/undo",
			Scope: auth.GitWrite, Denied: forbidden, Handler: d.Undo,
		},
		{
			Method: "POST", Path: v1 + "/repos/transactions", Named: named + "/transactions",
			Scope: auth.GitWrite, Denied: forbidden, Handler: d.Transaction,
			BodyMax: commitPackMax, Patient: true, CostsBytes: transactionCosts,
		},
		{
			Method: "POST", Path: v1 + "/transactions", Named: "/api/transactions",
			Scope: auth.GitWrite, Denied: forbidden, Handler: d.OrgTransaction, Org: true,
			BodyMax: commitPackMax, Patient: true, CostsBytes: transactionCosts,
		},
		{
			Method: "POST", Path: v1 + "/repos/restore-commit", Named: named + "/restore-commit",
			Scope: auth.GitWrite, Denied: forbidden, Handler: d.RestoreCommit,
		},
	}
}

// transactionCosts is the memory of a stream of commits and of the merges that follow it, one at a
// time.
const transactionCosts = commitCosts + mergeCosts

// mergeCosts is the memory of a merge of everyday size.
const mergeCosts = 8 << 20
