package object

import "bytes"

// The limits of git for .gitattributes.
const (
	GitattributesSizeMax = 100 << 20
	gitattributesLineMax = 2048
)

// CheckGitattributes judges a blob as .gitattributes by its size and the length of its lines.
// Errors: [*CheckError].
func CheckGitattributes(data []byte) error {
	if len(data) > GitattributesSizeMax {
		return Gitattributes.Fault("Large", "is too large")
	}
	var check GitattributesCheck
	_, err := check.Write(data)
	return err
}

// GitattributesCheck judges a blob of at most [GitattributesSizeMax] bytes as .gitattributes while
// it is written, as [CheckGitattributes] does. The zero value is at the blob's begin.
type GitattributesCheck struct {
	line  int  // bytes of the current line
	ended bool // git reads no further than the first NUL
}

// Write implements [io.Writer]. Errors: [*CheckError].
func (c *GitattributesCheck) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0 && !c.ended; {
		end := bytes.IndexByte(rest, '\n')
		line := rest
		if end >= 0 {
			line, rest = rest[:end], rest[end+1:]
		} else {
			rest = nil
		}
		if end := bytes.IndexByte(line, 0); end >= 0 {
			line, c.ended = line[:end], true
		}
		if c.line += len(line); c.line >= gitattributesLineMax {
			return 0, &CheckError{
				Type: TypeBlob, Name: "gitattributesLineLength", Detail: ".gitattributes has a line that is too long",
			}
		}
		if end >= 0 {
			c.line = 0
		}
	}
	return len(p), nil
}
