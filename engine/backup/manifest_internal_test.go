package backup

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
)

// FuzzBackupManifest checks that an accepted manifest equals, line for line, the output of its
// writer: nothing else has its checksum.
func FuzzBackupManifest(f *testing.F) {
	body := "packhorse backup 1\ntime 2026-01-02T15:04:05Z\n" +
		"file 0123456789abcdef0123456789abcdef.segment 12 " + strings.Repeat("ab", sha256.Size) + "\n" +
		"keys MANIFEST-000001 0 " + strings.Repeat("cd", sha256.Size) + "\n"
	f.Add(body, true)
	f.Add(body+"file ../a 1 "+strings.Repeat("ab", sha256.Size)+"\n", true)
	f.Add("packhorse backup 1\n", true)
	f.Add("packhorse backup 2\ntime 2026-01-02T15:04:05Z\nstore "+strings.Repeat("0f", StoreIDSize)+"\n"+
		"lost 0123456789abcdef0123456789abcdef.segment\nkeys CURRENT 0 "+strings.Repeat("cd", sha256.Size)+"\n", true)
	f.Add("packhorse backup 2\ntime 2026-01-02T15:04:05Z\nstore ../x\n", true)
	f.Add("", false)
	f.Fuzz(func(t *testing.T, body string, ends bool) {
		text := body
		if ends {
			text += fmt.Sprintf("end %x\n", sha256.Sum256([]byte(body)))
		}
		var lines []string
		for e, err := range parseManifest(strings.NewReader(text), new(head)) {
			if err != nil {
				return
			}
			lines = append(lines, strings.TrimSuffix(e.line(), "\n"))
		}
		version, rest, _ := strings.Cut(text, "\n")
		_, rest, _ = strings.Cut(rest, "\n")
		if version == "packhorse backup 2" {
			_, rest, _ = strings.Cut(rest, "\n")
		}
		got := strings.Join(append(lines, ""), "\n")
		rest, sum, ended := strings.Cut(rest, "end ")
		if !ended || got != rest ||
			sum != fmt.Sprintf("%x\n", sha256.Sum256([]byte(text[:len(text)-len("end \n")-2*sha256.Size]))) {
			t.Errorf("taken: %q, read as %q", text, got)
		}
		for _, line := range lines {
			if strings.Contains(line, "/") {
				t.Errorf("a path was taken: %q", line)
			}
		}
	})
}
