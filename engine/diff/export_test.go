package diff

// Quote returns a path as git shows it.
func Quote(path string) string { return string(appendQuoted(nil, "", path)) }
