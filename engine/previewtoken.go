package engine

import (
	"encoding/base64"
	"encoding/binary"
	"unicode/utf8"

	"packhorse/pack/object"
	"packhorse/refs"
)

// PreviewToken is a merge as it was shown: what was merged into which branch, both tips, and the
// tree that came of it. Clients keep it, and no server does.
//
// It proves nothing and needs no signature: a merge by a token is computed like any other, and must
// come to the same. A made-up token is a request with expectations, which fail.
type PreviewToken struct {
	Repo   refs.RepoID
	Source CommitName
	Target MergeBranch
	// SourceTip and TargetTip are the commits that were merged, and Tree their merge; with conflicts,
	// what git would write to the work tree.
	SourceTip, TargetTip, Tree object.ID
}

// The bytes of a token: its version, flags, the ID of the repository, the three object IDs, the
// size of the source's name in two bytes, the names of source and target.
const (
	tokenVersion = 1

	sourceIsEphemeral = 1 << 0
	targetIsEphemeral = 1 << 1
	sourceIsBranch    = 1 << 2
	tokenFlags        = sourceIsEphemeral | targetIsEphemeral | sourceIsBranch

	tokenFixed = 2 + len(refs.RepoID{}) + 3*object.IDSize + 2
)

// String returns the token as clients get it, in URL-safe letters.
func (p *PreviewToken) String() string {
	var flags byte
	if p.Source.Namespace == refs.Ephemeral {
		flags |= sourceIsEphemeral
	}
	if p.Target.Namespace == refs.Ephemeral {
		flags |= targetIsEphemeral
	}
	if p.Source.Kind == BranchName {
		flags |= sourceIsBranch
	}
	data := append([]byte{tokenVersion, flags}, p.Repo[:]...)
	for _, id := range []object.ID{p.SourceTip, p.TargetTip, p.Tree} {
		data = append(data, id[:]...)
	}
	data = binary.BigEndian.AppendUint16(data, uint16(len(p.Source.Text))) // a query has no more than 8 KiB
	data = append(append(data, p.Source.Text...), p.Target.Name...)
	return base64.RawURLEncoding.EncodeToString(data)
}

// ParsePreviewToken reads what [PreviewToken.String] wrote. Errors: [ErrInvalid].
func ParsePreviewToken(text string) (*PreviewToken, error) {
	malformed := invalid("preview_token: expected one that a preview of a merge answered")
	data, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(data) < tokenFixed || data[0] != tokenVersion || data[1]&^tokenFlags != 0 {
		return nil, malformed
	}
	p := &PreviewToken{Source: CommitName{Field: "source_ref"}}
	flags := data[1]
	data = data[2+copy(p.Repo[:], data[2:]):]
	for _, id := range []*object.ID{&p.SourceTip, &p.TargetTip, &p.Tree} {
		data = data[copy(id[:], data):]
	}
	size := int(binary.BigEndian.Uint16(data))
	if data = data[2:]; size == 0 || size >= len(data) {
		return nil, malformed
	}
	if !utf8.Valid(data[:size]) || !utf8.Valid(data[size:]) { // JSON has no place for such names
		return nil, malformed
	}
	p.Source.Text, p.Target.Name = string(data[:size]), string(data[size:])
	if flags&sourceIsEphemeral != 0 {
		p.Source.Namespace = refs.Ephemeral
	}
	if flags&targetIsEphemeral != 0 {
		p.Target.Namespace = refs.Ephemeral
	}
	if flags&sourceIsBranch != 0 {
		p.Source.Kind, p.Source.Field = BranchName, "source_branch"
	}
	return p, nil
}

// checkRepo refuses the token of another repository, whose branches are not looked for in this one.
// Errors: [ErrInvalid].
func (p *PreviewToken) checkRepo(r *Repository) error {
	if p != nil && p.Repo != r.record.ID {
		return invalid("preview_token: it is of another repository")
	}
	return nil
}

// checkTips compares the tips of a merge with those that were shown. Errors: [ErrStale].
func (p *PreviewToken) checkTips(source, target object.ID) error {
	switch {
	case p.TargetTip != target:
		return &StaleError{Branch: p.Target.Name, Expected: p.TargetTip, Actual: target}
	case p.SourceTip != source:
		return &StaleError{Branch: p.Source.Text, Expected: p.SourceTip, Actual: source, Of: StaleSource}
	default:
		return nil
	}
}

// checkTree compares the result of a merge with the one that was shown. Errors: [ErrStale].
func (p *PreviewToken) checkTree(tree object.ID) error {
	if p != nil && p.Tree != tree {
		return &StaleError{Branch: p.Target.Name, Expected: p.Tree, Actual: tree, Of: StaleResult}
	}
	return nil
}
