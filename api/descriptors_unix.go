//go:build unix

package api

import "syscall"

// descriptorsMax returns how many files and connections the process may have open.
func descriptorsMax() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return descriptorsDefault
	}
	return limit.Cur
}
