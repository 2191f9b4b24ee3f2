package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"math/big"
	"slices"
	"sync"
)

// decoy returns a public key that fits a signature of that algorithm and size, and whose private
// half does not exist; nil when no registrable key makes such a signature. A token that cannot be
// signed by any key of its issuer is verified with the decoy, so that the time of the refusal does
// not reveal whether that issuer exists, or which keys it has.
func decoy(alg string, signatureBytes int) crypto.PublicKey {
	if bits := 8 * signatureBytes; alg == "RS256" && bits >= rsaBitsMin && bits <= rsaBitsMax {
		modulus := new(big.Int).Lsh(big.NewInt(1), uint(bits)) // it need not have two prime factors to be worked with
		return &rsa.PublicKey{N: modulus.Sub(modulus, big.NewInt(1)), E: rsaExponentMin}
	}
	for _, public := range decoys() {
		if signatureSize(public) == signatureBytes && slices.Contains(algorithms(public), alg) {
			return public
		}
	}
	return nil
}

// decoys returns a key of each kind that has only one size of signature.
var decoys = sync.OnceValue(func() (list []crypto.PublicKey) {
	for _, curve := range []elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521()} {
		if private, err := ecdsa.GenerateKey(curve, rand.Reader); err == nil {
			list = append(list, private.Public())
		}
	}
	if public, _, err := ed25519.GenerateKey(rand.Reader); err == nil {
		list = append(list, public)
	}
	return list
})

// signatureSize returns how many bytes a signature by the private half of a key has.
func signatureSize(public crypto.PublicKey) int {
	switch public := public.(type) {
	case *rsa.PublicKey:
		return public.Size()
	case *ecdsa.PublicKey:
		return 2 * orderSize(public.Curve)
	default:
		return ed25519.SignatureSize
	}
}
