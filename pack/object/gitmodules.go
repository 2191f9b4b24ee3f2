package object

import "strings"

// CheckGitmodules judges a blob as .gitmodules: submodule names, URLs, paths and update commands
// that could make git run or overwrite something are refused. The check ends without an error at
// text that git's configuration parser does not accept, as in git. Errors: [*CheckError].
func CheckGitmodules(data []byte) error {
	p := configParser{rest: string(data)}
	for p.next() {
		if p.section != "submodule" || !p.hasSubsection {
			continue
		}
		if err := checkSubmodule(&p); err != nil {
			return err
		}
	}
	return nil
}

func checkSubmodule(p *configParser) error {
	fault := func(name, detail string) error {
		return &CheckError{Type: TypeBlob, Name: name, Detail: ".gitmodules: " + clip(detail)}
	}
	switch {
	case !submoduleNameSafe(p.subsection):
		return fault("gitmodulesName", p.subsection)
	case !p.hasValue:
		return nil
	case p.key == "url" && !submoduleURLSafe(p.value):
		return fault("gitmodulesUrl", p.value)
	case p.key == "path" && strings.HasPrefix(p.value, "-"):
		return fault("gitmodulesPath", p.value)
	case p.key == "update" && strings.HasPrefix(p.value, "!"):
		return fault("gitmodulesUpdate", p.value)
	}
	return nil
}

// submoduleNameSafe refuses names that would leave .git/modules.
func submoduleNameSafe(name string) bool {
	if name == "" {
		return false
	}
	for component := range strings.FieldsFuncSeq(name, func(r rune) bool { return r == '/' || r == '\\' }) {
		if component == ".." {
			return false
		}
	}
	return true
}

// submoduleURLSafe refuses URLs that look like an option, or whose decoded form could smuggle lines
// or another host into the input of git's helpers.
func submoduleURLSafe(url string) bool {
	if strings.HasPrefix(url, "-") {
		return false
	}
	rest, parents := cutDots(url)
	relative := rest != url
	if relative || strings.HasPrefix(url, "git://") {
		if strings.Contains(decodePercent(url), "\n") {
			return false
		}
		return parents == 0 || rest == "" || rest[0] != ':' && rest[0] != '/'
	}
	for _, scheme := range []string{"http", "https", "ftp", "ftps"} {
		if remote, ok := strings.CutPrefix(url, scheme+"::"); ok {
			return remoteURLSafe(remote)
		}
		if strings.HasPrefix(url, scheme+"://") {
			return remoteURLSafe(url)
		}
	}
	return true
}

// cutDots takes "./" and "../" from the front of url, either slash, and counts the latter.
func cutDots(url string) (rest string, parents int) {
	for {
		switch {
		case strings.HasPrefix(url, "../"), strings.HasPrefix(url, `..\`):
			url = url[3:]
			parents++
		case strings.HasPrefix(url, "./"), strings.HasPrefix(url, `.\`):
			url = url[2:]
		default:
			return url, parents
		}
	}
}

// remoteURLSafe wants a scheme, a host, and no newline in any part.
func remoteURLSafe(url string) bool {
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok || scheme == "" || strings.Contains(decodePercent(url), "\n") {
		return false
	}
	host := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		host = rest[:end]
	}
	if at := strings.IndexByte(host, '@'); at >= 0 {
		host = host[at+1:]
	}
	return host != ""
}

// decodePercent decodes %xx and leaves anything else, and %00, as it is.
func decodePercent(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			high, low := nibbles[s[i+1]], nibbles[s[i+2]]
			if high|low <= 0xf && high|low != 0 {
				out = append(out, high<<4|low)
				i += 2
				continue
			}
		}
		out = append(out, s[i])
	}
	return string(out)
}
