package refs

// CheckFormat applies the rules of git-check-ref-format(1) to name, with its option
// --allow-onelevel when oneLevel is set.
//
// Errors: a [NameError].
func CheckFormat(name string, oneLevel bool) error {
	if reason := formatFault(name, oneLevel); reason != "" {
		return &NameError{Name: name, Reason: reason}
	}
	return nil
}
