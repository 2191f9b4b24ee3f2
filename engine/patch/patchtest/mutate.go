package patchtest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
)

var numbers = regexp.MustCompile(`\d+`)

// mutate changes a patch in a few places, sometimes so that it still applies. other is another
// patch of the same history.
func mutate(random *rand.Rand, text, other []byte) []byte {
	for range 1 + random.IntN(2) {
		text = mutateOnce(random, slices.Clone(text), other)
	}
	return text
}

func mutateOnce(random *rand.Rand, text, other []byte) []byte {
	if len(text) == 0 {
		return other
	}
	switch random.IntN(16) {
	case 0:
		text[random.IntN(len(text))] = byte(random.Uint32())
		return text
	case 1:
		at := random.IntN(len(text))
		return slices.Delete(text, at, min(len(text), at+1+random.IntN(3)))
	case 2:
		const likely = "\n\r\t \"\\/+-@ab0179.,\x00"
		return slices.Insert(text, random.IntN(len(text)), likely[random.IntN(len(likely))])
	case 3:
		return text[:random.IntN(len(text))]
	case 4:
		return append(text, other...)
	case 5:
		return append(text, text...)
	case 6:
		return mutateParts(random, text)
	}
	lines := bytes.SplitAfter(text, []byte{'\n'})
	at := random.IntN(len(lines))
	if random.IntN(2) == 0 { // headers are few and matter most
		at = headerLine(random, lines)
	}
	switch random.IntN(9) {
	case 0:
		lines = slices.Delete(lines, at, at+1)
	case 1:
		lines = slices.Insert(lines, at, slices.Clone(lines[at]))
	case 2:
		to := random.IntN(len(lines))
		lines[at], lines[to] = lines[to], lines[at]
	case 3, 4:
		lines[at] = mutateNumber(random, lines[at])
	case 5:
		if len(lines[at]) > 0 {
			lines[at] = slices.Clone(lines[at])
			lines[at][0] = " +-\\@\n\""[random.IntN(7)]
		}
	case 6:
		likely := []string{
			"\\ No newline at end of file\n", "\n", " \n", "@@ -1 +1 @@\n", "garbage\n", "GIT binary patch\n", "--- /dev/null\n",
			"+++ /dev/null\n",
			"new file mode 100644\n", "deleted file mode 100644\n", "old mode 100644\n", "new mode 100755\n",
			"similarity index 100%\n",
			"rename from a\n", "rename to b\n", "copy from a\n", "copy to dir/b\n", "Binary files a/a and b/a differ\n", "-\n",
			"+\n",
			"diff --git a/a b/a\n", "index 0000000..1111111 100644\n", "new file mode 120000\n", "new file mode 160000\n",
			"--- a/a\n", "+++ b/a\n",
		}
		lines = slices.Insert(lines, at, []byte(likely[random.IntN(len(likely))]))
	case 7:
		lines[at] = bytes.Replace(lines[at], []byte("a/"),
			[][]byte{nil, []byte("/"), []byte("a//"), []byte("a/../"), []byte("a/.git/"), []byte("\"a/")}[random.IntN(6)], 1)
	case 8:
		lines[at] = slices.Concat(bytes.TrimSuffix(lines[at], []byte{'\n'}), []byte("\t2001-02-03 04:05:06.000 +0100\n"))
	}
	return bytes.Join(lines, nil)
}

// headerLine draws a line that is none of a hunk's content.
func headerLine(random *rand.Rand, lines [][]byte) int {
	var headers []int
	for i, l := range lines {
		if len(l) > 0 && bytes.IndexByte([]byte("@dionrscGl"), l[0]) >= 0 || bytes.HasPrefix(l, []byte("--- ")) ||
			bytes.HasPrefix(l, []byte("+++ ")) {
			headers = append(headers, i)
		}
	}
	if len(headers) == 0 {
		return random.IntN(len(lines))
	}
	return headers[random.IntN(len(headers))]
}

// mutateNumber changes one number of a line a little.
func mutateNumber(random *rand.Rand, text []byte) []byte {
	found := numbers.FindAllIndex(text, -1)
	if len(found) == 0 {
		return text
	}
	at := found[random.IntN(len(found))]
	value, _ := strconv.Atoi(string(text[at[0]:at[1]]))
	switch random.IntN(4) {
	case 0:
		value = 0
	case 1:
		value += 1 + random.IntN(3)
	case 2:
		value = max(value-1-random.IntN(3), 0)
	case 3:
		value *= 1 + random.IntN(20)
	}
	return slices.Concat(text[:at[0]], fmt.Append(nil, value), text[at[1]:])
}

// mutateParts shuffles, drops, repeats or undresses the parts of a patch.
func mutateParts(random *rand.Rand, text []byte) []byte {
	const mark = "\ndiff --git "
	parts := bytes.Split(slices.Concat([]byte{'\n'}, text), []byte(mark))[1:]
	if len(parts) == 0 {
		return text
	}
	at := random.IntN(len(parts))
	switch random.IntN(4) {
	case 0:
		random.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	case 1:
		parts = slices.Delete(parts, at, at+1)
	case 2:
		parts = append(parts, parts[at])
	case 3: // only the plain header is left
		if i := bytes.Index(parts[at], []byte("\n--- ")); i >= 0 {
			return slices.Concat(parts[at][i+1:], []byte{'\n'})
		}
	}
	var joined []byte
	for _, p := range parts {
		joined = append(joined, mark[1:]...)
		joined = append(joined, bytes.TrimSuffix(p, []byte{'\n'})...)
		joined = append(joined, '\n')
	}
	return joined
}
