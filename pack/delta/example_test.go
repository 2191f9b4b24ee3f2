package delta_test

import (
	"bytes"
	"fmt"
	"log"

	"packhorse/pack/delta"
)

// A delta of a text in which one line has changed copies what lies before and behind it.
func Example() {
	var lines []string
	for i := range 100 {
		lines = append(lines, fmt.Sprintf("this is line %d\n", i))
	}
	join := func() (text []byte) {
		for _, line := range lines {
			text = append(text, line...)
		}
		return text
	}
	base := join()
	lines[50] = "another line\n"
	target := join()

	// An index is made once for a base and serves any number of targets. The last argument bounds the
	// delta: one that is too large is no gain over the target itself.
	program, ok := delta.NewIndex(base).Create(nil, target, len(target)/2)
	if !ok {
		log.Fatal("the texts have too little in common")
	}
	fmt.Printf("base %d bytes, target %d bytes, delta %d bytes\n", len(base), len(target), len(program))

	// The last argument bounds what a delta from elsewhere may grow to.
	applied, err := delta.Apply(nil, base, program, 1<<20)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("applied:", bytes.Equal(applied, target))
	// Output:
	// base 1590 bytes, target 1587 bytes, delta 25 bytes
	// applied: true
}
