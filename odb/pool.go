package odb

import "github.com/google/uuid"

// PoolID names a pool. It is a UUID of version 7: IDs sort by creation and are never reused.
type PoolID [16]byte

// NewPoolID returns a new ID. It panics only when the system has no random numbers; crypto/rand
// panics then, too.
func NewPoolID() PoolID { return PoolID(uuid.Must(uuid.NewV7())) }

// String returns the canonical form of the UUID.
func (p PoolID) String() string { return uuid.UUID(p).String() }
