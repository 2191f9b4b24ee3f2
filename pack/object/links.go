package object

import "bytes"

// Links calls visit for every object that the object in data names, in stored order, with the type
// that it must have (0: any). Gitlinks are skipped, and with them file types that git does not
// know, as git does: their objects are in another repository. Blobs have no links.
//
// The walk ends at the first error of visit, which is returned. Errors: [ErrMalformed].
func Links(t Type, data []byte, visit func(id ID, want Type) error) error {
	switch t {
	case TypeTree:
		return treeLinks(data, visit)
	case TypeCommit:
		tree, parents, _, err := CommitLinks(data)
		if err != nil {
			return err
		}
		if err := visit(tree, TypeTree); err != nil {
			return err
		}
		for _, parent := range parents {
			if err := visit(parent, TypeCommit); err != nil {
				return err
			}
		}
		return nil
	case TypeTag:
		id, want, err := TagLink(data)
		if err != nil {
			return err
		}
		return visit(id, want)
	case TypeBlob:
		return nil
	default:
		return ErrUnknownType
	}
}

func treeLinks(data []byte, visit func(id ID, want Type) error) error {
	it := IterTree(data)
	for it.Next() {
		want := it.Mode.Type()
		if want == TypeCommit {
			continue
		}
		if err := visit(it.ID, want); err != nil {
			return err
		}
	}
	return it.Err()
}

// TagLink returns the target of a tag object, and its type. Errors: [ErrMalformed].
func TagLink(data []byte) (ID, Type, error) {
	id, rest, ok := cutIDLine(data, "object ")
	if !ok {
		return ZeroID, 0, malformed(TypeTag, "no object")
	}
	line, _, _ := bytes.Cut(rest, []byte{'\n'})
	name, ok := bytes.CutPrefix(line, []byte("type "))
	if !ok {
		return ZeroID, 0, malformed(TypeTag, "no type")
	}
	t, err := ParseType(string(name))
	if err != nil {
		return ZeroID, 0, malformed(TypeTag, "type %q", clip(string(name)))
	}
	return id, t, nil
}
