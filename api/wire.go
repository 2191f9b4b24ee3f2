package api

import "time"

// wireTime is about what it takes to send or to receive a KiB, in the kernel above all.
const wireTime = 250 * time.Nanosecond

// payBytes is how much is charged at once.
const payBytes = 64 << 10

// pay charges bytes of a body or of an answer that were transferred outside of the request's turn.
func (x *transfer) pay(count int) {
	if x.account != nil && x.unpaid.Add(int64(count)) >= payBytes {
		x.account.Owe(time.Duration(x.unpaid.Swap(0)>>10) * wireTime)
	}
}
