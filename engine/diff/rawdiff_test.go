package diff_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"testing"

	"packhorse/engine/diff"
	"packhorse/fuzz/oracle"
	"packhorse/pack/object"
)

// diffStream is one git diff-tree that is asked about many pairs of trees.
type diffStream struct {
	tb      testing.TB
	command *exec.Cmd
	answers *bufio.Reader
	line    []byte // read and not yet used
}

// openDiffStream starts git diff-tree in the repository in dir, to be asked about steps, in order.
func openDiffStream(tb testing.TB, dir string, steps []oracle.Step, options ...string) *diffStream {
	tb.Helper()
	command := exec.Command("git", append([]string{"diff-tree", "--stdin", "-r"}, options...)...)
	command.Env = oracle.Env(dir)
	var questions bytes.Buffer
	for _, s := range steps {
		fmt.Fprintf(&questions, "%s %s\n", s.Before, s.After)
	}
	command.Stdin = &questions
	answers, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		tb.Fatal(err)
	}
	d := &diffStream{tb: tb, command: command, answers: bufio.NewReaderSize(answers, 1<<20)}
	d.next()
	return d
}

func (d *diffStream) next() {
	d.line = d.line[:0]
	for {
		piece, err := d.answers.ReadSlice('\n')
		d.line = append(d.line, piece...)
		if err == nil || errors.Is(err, io.EOF) {
			return
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			d.tb.Fatal(err)
		}
	}
}

// answer returns the output of git for a step.
func (d *diffStream) answer(s oracle.Step, following *oracle.Step) []byte {
	if head := s.Before + " " + s.After + "\n"; string(d.line) != head {
		return nil // nothing differs
	}
	end := ""
	if following != nil {
		end = following.Before + " " + following.After + "\n"
	}
	var text []byte
	for d.next(); len(d.line) > 0 && string(d.line) != end; d.next() {
		text = append(text, d.line...)
	}
	return text
}

func (d *diffStream) close() {
	if err := d.command.Wait(); err != nil {
		d.tb.Error(err)
	}
}

// rawLine formats a change in the format of git diff-tree --raw.
func rawLine(c *diff.Change) string {
	line := fmt.Sprintf(":%s %s %s %s %c", c.Old.Mode, c.New.Mode, c.Old.ID, c.New.ID, c.Status)
	if c.Status == diff.Renamed {
		line += fmt.Sprintf("%03d\t%s", diff.Percent(c.Score), diff.Quote(c.Old.Path))
	}
	return line + "\t" + diff.Quote(c.New.Path) + "\n"
}

func treeID(tb testing.TB, hex string) object.ID {
	tb.Helper()
	id, err := object.ParseID(hex)
	if err != nil {
		tb.Fatal(err)
	}
	return id
}
