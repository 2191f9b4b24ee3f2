package rest

import (
	"cmp"

	"packhorse/api/exchange"
	"packhorse/engine"
	"packhorse/refs"
)

// Some fields and parameters have an older name beside their present one. Both are understood on
// every path. The present name counts if both come, also with the value false or "": docs/api.md,
// "Conventions".

// either returns the value of the field that counts, zero without one.
func either[T any](present, older *T) T {
	value, _ := eitherNamed("", present, "", older)
	return value
}

// eitherNamed returns the value of the field that counts, and the name by which it was given; the
// present name if it was not.
func eitherNamed[T any](name string, present *T, olderName string, older *T) (value T, by string) {
	switch {
	case present != nil:
		return *present, name
	case older != nil:
		return *older, olderName
	default:
		return value, name
	}
}

// parameter returns the value of the parameter that counts, and the name by which it was given; the
// present name if it was not.
func parameter(x exchange.Exchange, name, olderName string) (value, by string) {
	query := x.Query()
	if !query.Has(name) && query.Has(olderName) {
		return query.Get(olderName), olderName
	}
	return query.Get(name), name
}

// flagParameter is [parameter] for a flag.
func flagParameter(x exchange.Exchange, name, olderName string, byDefault bool) (bool, error) {
	_, by := parameter(x, name, olderName)
	return flagOf(x, by, byDefault)
}

// commitName is the commit that a field or a parameter names: any revision by its present name, and
// what kind says by its older one.
func commitName(value, by, older string, kind engine.NameKind, space refs.Namespace) engine.CommitName {
	name := engine.CommitName{Text: value, Namespace: space, Field: by}
	if by == older {
		name.Kind = kind
	}
	return name
}

// checkDigits refuses a full object ID in capital letters, and whatever else is none, where one is
// expected.
func checkDigits(name engine.CommitName) error {
	if name.Kind != engine.FullID {
		return nil
	}
	_, err := expectedID(name.Text, name.Field)
	return err
}

// pathOr returns the part of the path called name, or what the body or the query says where the
// path has no such part. If both are given, they must be equal.
func pathOr(x exchange.Exchange, name, value string) (string, error) {
	part := x.PathValue(name)
	if part != "" && value != "" && value != part {
		return "", badRequest("%s: the path says %.100q, and the body %.100q", name, part, value)
	}
	return cmp.Or(part, value), nil
}
