package secrets

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"maps"
	"math/big"
	"slices"
)

// exchangeName is the encryption of the secret service's sessions: Diffie-Hellman over the 1024-bit group of RFC 2409,
// HKDF, and AES in CBC mode. It is what there is; it keeps a secret from who watches the bus, not from who is on it.
const exchangeName = "dh-ietf1024-sha256-aes128-cbc-pkcs7"

const groupBytes = 128

// group gives the prime of the Second Oakley Group (RFC 2409, 6.2). Its generator is 2.
func group() *big.Int {
	p, _ := new(big.Int).SetString("FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DD"+
		"EF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7EDEE386BFB5A899FA5AE9F2411"+
		"7C4B1FE649286651ECE65381FFFFFFFFFFFFFFFF", 16)
	return p
}

// newExchange makes a key pair for one session.
func newExchange() (private *big.Int, public []byte, err error) {
	p := group()
	if private, err = rand.Int(rand.Reader, new(big.Int).Sub(p, big.NewInt(3))); err != nil {
		return nil, nil, err
	}
	private.Add(private, big.NewInt(2))
	return private, new(big.Int).Exp(big.NewInt(2), private, p).FillBytes(make([]byte, groupBytes)), nil
}

var errExchange = errors.New("the secret service does not keep to its protocol")

// agree gives the session's key.
func agree(private *big.Int, public []byte) ([]byte, error) {
	p, theirs := group(), new(big.Int).SetBytes(public)
	if len(public) > groupBytes || theirs.Cmp(big.NewInt(1)) <= 0 || theirs.Cmp(new(big.Int).Sub(p, big.NewInt(1))) >= 0 {
		return nil, errExchange
	}
	shared := new(big.Int).Exp(theirs, private, p).FillBytes(make([]byte, groupBytes))
	return hkdf.Key(sha256.New, shared, nil, "", aes.BlockSize)
}

// decrypt opens a value of the session.
func decrypt(key, iv, text []byte) ([]byte, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	if len(iv) != aes.BlockSize || len(text) == 0 || len(text)%aes.BlockSize != 0 || len(text) > MaxBytes+aes.BlockSize {
		return nil, errExchange
	}
	plain := make([]byte, len(text))
	cipher.NewCBCDecrypter(block, iv).CryptBlocks(plain, text)
	pad := int(plain[len(plain)-1])
	if pad < 1 || pad > aes.BlockSize {
		return nil, errExchange
	}
	for _, b := range plain[len(plain)-pad:] {
		if int(b) != pad {
			return nil, errExchange
		}
	}
	return plain[:len(plain)-pad], nil
}

func keys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
