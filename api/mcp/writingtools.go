package mcp

import (
	"net/http"
	"slices"
)

// commitFields are those of metadata: docs/api.md, "Writing commits".
var commitFields = []field{
	{name: "target_branch", required: true, about: "the branch that gets the commit"},
	{name: "commit_message", required: true, about: "a subject, a blank line, and what and why"},
	authorField,
	committerField,
	{
		name:  "expected_target_sha",
		about: "the tip that the branch must have, 40 digits; otherwise nothing is written. Send it, so that no change is lost",
	},
	{name: "base_branch", about: "where target_branch starts if it does not exist"},
	{name: "ephemeral", kind: flag, about: "target_branch is in the ephemeral namespace"},
	{name: "ephemeral_base", kind: flag, about: "base_branch is in the ephemeral namespace"},
	{name: "allow_empty", kind: flag, about: "false: no commit that changes nothing"},
	dryRunField,
	keyField,
}

// fileFields are those of a file of a commit.
var fileFields = []field{
	{name: "path", required: true, about: "relative to the root of the repository"},
	{name: "text", about: "the whole new content, as text"},
	{name: "base64", about: "the whole new content, of bytes that are no text"},
	{
		name: "edits", kind: objects, of: editFields,
		about: "exact texts to replace in the file as it is, one after the other; all fail if one does",
	},
	{name: "move_from", about: "the file or folder that path gets, and that is gone from there; edits may change it on the way"},
	{name: "copy_from", about: "the file or folder that path gets, too; edits may change it on the way"},
	{name: "delete", kind: flag, about: "true removes the file or the folder"},
	{
		name: "mode", oneOf: []string{"100644", "100755", "120000", "160000"},
		about: "file, executable file, symbolic link or submodule; without it an existing file keeps its mode",
	},
}

// editFields are those of an edit of a file.
var editFields = []field{
	{name: "old", required: true, about: "the text to replace, byte for byte, with as many lines around as make it unique"},
	{name: "new", required: true, about: "what takes its place"},
	{name: "count", kind: count, about: "how often old is in the file, to replace it everywhere: once without it"},
}

// resolutionFields are those of a resolution: docs/api.md, "POST /api/v1/repos/merge".
var resolutionFields = []field{
	{name: "path", required: true, about: "a path of conflict_paths"},
	{name: "side", oneOf: []string{"ours", "theirs", "base"}, about: "the version of one side, or its deletion"},
	{name: "content", about: "the new content, as text"},
	{name: "blob_sha", about: "the new content, a blob of this repository"},
	{name: "mode", oneOf: []string{"100644", "100755", "120000"}, about: "of the new content"},
	{name: "delete", kind: flag, about: "true removes the file"},
}

// pickFields are those of cherry_pick and revert.
var pickFields = []field{
	{name: "commits", kind: texts, required: true, about: "commit ids, branches or other revisions, done in this order"},
	{name: "source_is_ephemeral", kind: flag, about: "their names are in the ephemeral namespace"},
	{name: "target_branch", required: true, about: "the branch that moves"},
	{name: "target_is_ephemeral", kind: flag, about: "the target is in the ephemeral namespace"},
	{name: "expected_target_sha", about: "the tip that the target must have, 40 digits; otherwise nothing is written"},
	{name: "mainline", kind: count, about: "the parent of merges to compare with, from 1"},
	{name: "empty", oneOf: []string{"stop", "drop", "keep"}, about: "what becomes of a commit that changes nothing: stop without it"},
	{
		name: "resolutions", kind: objects, about: "what becomes of the files that conflict",
		of: with(resolutionFields, field{name: "commit_index", kind: count, about: "which of commits, from 0; 0 without it"}),
	},
	dryRunField,
	keyField,
}

// sourceFields are those of what is landed.
var sourceFields = []field{
	{name: "ref", required: true, about: "a branch, or another revision"},
	{name: "is_ephemeral", kind: flag, about: "its name is in the ephemeral namespace"},
	{name: "message", about: "of the commit; names the branches without it"},
	{name: "squash", kind: flag, about: "one commit with the target as its only parent"},
}

// with returns fields behind more of them.
func with(fields []field, more ...field) []field {
	return append(slices.Clip(more), fields...)
}

var writingTools = []tool{
	{
		name: "commit", title: "Commit files", method: http.MethodPost, path: base + "/repos/commit-pack", writes: true,
		about: "Adds one commit to a branch: it writes, edits, moves, copies and deletes files. All other files stay as they are. " +
			"edits, move_from and copy_from speak of the files before the commit.",
		fields: with(commitFields, field{
			name: "files", kind: objects, of: fileFields, required: true, own: true,
			about: "each with a path and one of text, base64, edits, move_from, copy_from and delete",
		}),
		run: commit,
	},
	{
		name: "apply_patch", title: "Commit a patch", method: http.MethodPost, path: base + "/repos/diff-commit", writes: true,
		about: "Adds one commit to a branch: the patch, as git apply takes it, is applied as a whole or not at all.",
		fields: with(commitFields,
			field{name: "patch", own: true, about: "a unified diff"},
			field{name: "patch_base64", own: true, about: "a unified diff of bytes that are no text"}),
		run: applyPatch,
	},
	{
		name: "merge", title: "Merge branches", method: http.MethodPost, path: base + "/repos/merge", writes: true,
		about: "Merges one branch into another. A conflict that resolutions do not settle writes nothing, and names the files.",
		fields: []field{
			{
				name:  "preview_token",
				about: "of preview_merge: makes the merge that it showed, or fails if a branch has moved; the next three are not needed then",
			},
			{name: "source_branch", about: "what to merge; required without preview_token"},
			{name: "target_branch", about: "the branch that moves; required without preview_token"},
			{
				name: "strategy", oneOf: []string{"merge", "ff_only", "ff_prefer"},
				about: "always a merge commit; fast-forward or fail; fast-forward if possible; required without preview_token",
			},
			{name: "expected_target_sha", about: "the tip that the target must have, 40 digits; otherwise nothing is written"},
			{name: "commit_message", about: "required if a commit is made"},
			{name: "author", kind: person, about: "required if a commit is made"},
			committerField,
			{name: "squash", kind: flag, about: "one commit with the target as its only parent"},
			{name: "allow_unrelated_histories", kind: flag, about: "merge branches without a common ancestor"},
			{name: "source_is_ephemeral", kind: flag, about: "the source is in the ephemeral namespace"},
			{name: "target_is_ephemeral", kind: flag, about: "the target is in the ephemeral namespace"},
			{name: "resolutions", kind: objects, of: resolutionFields, about: "what becomes of the files that conflict"},
			dryRunField,
			keyField,
		},
	},
	{
		name: "cherry_pick", title: "Cherry-pick commits", method: http.MethodPost, path: base + "/repos/cherry-pick", writes: true,
		about: "Repeats commits on a branch, all of them or none. A conflict that resolutions do not settle names the files.",
		fields: with(pickFields,
			field{name: "message_line", kind: flag, about: "add the line that names the commit, as git cherry-pick -x"},
			field{name: "committer", kind: person, required: true, about: "who repeats them; a commit keeps its author"}),
	},
	{
		name: "revert", title: "Revert commits", method: http.MethodPost, path: base + "/repos/revert", writes: true,
		about:  "Takes back what commits have changed, each in a new commit, all of them or none.",
		fields: with(pickFields, authorField, committerField),
	},
	{
		name: "land", title: "Merge several branches", method: http.MethodPost, path: base + "/repos/land", writes: true,
		about: "Merges branches into one, in order and at once. Those that conflict are left out, and the answer says with which.",
		fields: []field{
			{name: "target_branch", required: true, about: "the branch that moves"},
			{name: "target_is_ephemeral", kind: flag, about: "the target is in the ephemeral namespace"},
			{name: "sources", kind: objects, of: sourceFields, required: true, about: "what to merge, in this order"},
			{name: "expected_target_sha", about: "the tip that the target must have, 40 digits; otherwise nothing is written"},
			{name: "stop_on_conflict", kind: flag, about: "true leaves out what follows a source that conflicts"},
			authorField, committerField, dryRunField, keyField,
		},
	},
	{
		name: "undo", title: "Undo changes of branches and tags", method: http.MethodPost, path: base + "/repos/undo", writes: true,
		about: "Gives branches and tags the values that they had at a moment, or takes one transaction back. No commit is lost, " +
			"and an undo can be undone.",
		fields: []field{
			{name: "to", about: "the moment: a time (RFC 3339), or seq:N of the journal; this or sequence is required"},
			{name: "sequence", kind: count, about: "the one transaction to take back"},
			{name: "refs", kind: texts, about: "only these, by full name or a prefix and *"},
			{name: "force", kind: flag, about: "with sequence: also what has moved since"},
			dryRunField, keyField,
		},
	},
	{
		name: "create_branch", title: "Create a branch", method: http.MethodPost, path: base + "/repos/branches/create",
		about: "Creates a branch. Exactly one of base_branch and base_ref is required.", writes: true,
		fields: []field{
			{name: "target_branch", required: true, about: "the new branch"},
			{name: "base_branch", about: "the branch that it starts from"},
			{name: "base_ref", about: "the branch, tag or commit id that it starts from"},
			{name: "target_is_ephemeral", kind: flag, about: "create it in the ephemeral namespace"},
			{name: "base_is_ephemeral", kind: flag, about: "the base is in the ephemeral namespace"},
			dryRunField,
			keyField,
		},
	},
	{
		name: "create_tag", title: "Create a tag", method: http.MethodPost, path: base + "/repos/tags", writes: true,
		about: "Creates a lightweight tag.",
		fields: []field{
			{name: "name", required: true, about: "the new tag"},
			{name: "target", required: true, about: "a commit id of 40 digits"},
			{name: "ephemeral", kind: flag, about: "create it in the ephemeral namespace"},
			dryRunField,
			keyField,
		},
	},
}
