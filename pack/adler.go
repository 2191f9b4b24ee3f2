package pack

const (
	adlerMod = 65521
	// adlerRun is how many bytes may be added before the sums overflow 32 bits.
	adlerRun = 5552
)

// updateAdler continues the Adler-32 checksum sum (1 for nothing) over p.
func updateAdler(sum uint32, p []byte) uint32 {
	a, b := sum&0xffff, sum>>16
	for len(p) > 0 {
		run := p[:min(len(p), adlerRun)]
		p = p[len(run):]
		for len(run) >= 8 {
			_ = run[7]
			b += a * 8
			b += uint32(run[0])*8 + uint32(run[1])*7 + uint32(run[2])*6 + uint32(run[3])*5 +
				uint32(run[4])*4 + uint32(run[5])*3 + uint32(run[6])*2 + uint32(run[7])
			a += uint32(run[0]) + uint32(run[1]) + uint32(run[2]) + uint32(run[3]) +
				uint32(run[4]) + uint32(run[5]) + uint32(run[6]) + uint32(run[7])
			run = run[8:]
		}
		for _, c := range run {
			a += uint32(c)
			b += a
		}
		a %= adlerMod
		b %= adlerMod
	}
	return b<<16 | a
}

// combineAdler returns the checksum of two pieces, one behind the other, from those of the pieces and the length of the second.
func combineAdler(first, second uint32, secondSize int64) uint32 {
	rest := uint64(secondSize % adlerMod)
	a1, b1 := uint64(first&0xffff), uint64(first>>16)
	a2, b2 := uint64(second&0xffff), uint64(second>>16)
	// Every byte of the second piece is counted into b on top of a1 instead of on top of 1.
	a := (a1 + a2 + adlerMod - 1) % adlerMod
	b := (b1 + b2 + rest*(a1+adlerMod-1)) % adlerMod
	return uint32(b<<16 | a)
}
