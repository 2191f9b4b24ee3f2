package auth

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// tokenHashBytes is how much of a token's SHA-256 names it.
const tokenHashBytes = 16

// hashOf names a token without telling it: the beginning of its SHA-256, in hexadecimal.
func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:tokenHashBytes])
}

// signedBytesMin is shorter than any token that some key has signed.
const signedBytesMin = 80

// TokenHash returns 32 hexadecimal digits of the SHA-256 of the token in an Authorization header,
// which was perhaps refused, and "" when there is none. Nothing that could be a password of a
// person is hashed, since such a hash gives the password away to who tries many.
func TokenHash(authorization string) string {
	token, err := credentials(authorization)
	if err != nil || len(token) < signedBytesMin || strings.Count(token, ".") != 2 {
		return ""
	}
	return hashOf(token)
}
