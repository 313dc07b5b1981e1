package auth

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"
	"golang.org/x/crypto/bcrypt"
)

// Lengths of a password in characters.
const (
	leastPassword = 12
	mostPassword  = 128
)

// ErrWeak wraps what is wrong with a password that a person has chosen.
var ErrWeak = errors.New("choose another password")

// ErrBusy says that too many people sign in at once. They can try again in a moment.
var ErrBusy = errors.New("too many people are signing in; try again in a moment")

//go:embed common.txt
var commonText string

// common are the 10,000 most common passwords.
//
//nolint:gochecknoglobals // a constant, but for Go
var common = sync.OnceValue(func() map[string]bool {
	list := map[string]bool{}
	for line := range strings.Lines(commonText) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			list[line] = true
		}
	}
	return list
})

// CheckPassword refuses a password that others would try first (NIST SP 800-63B 5.1.1.2):
// one that is too short, one of the most common with or without digits and signs around
// it, and one that holds the name before the @ of the e-mail. The error is [ErrWeak].
func CheckPassword(password, email string) error {
	n := utf8.RuneCountInString(password)
	lower := strings.ToLower(password)
	name, _, _ := strings.Cut(strings.ToLower(email), "@")
	switch {
	case !utf8.ValidString(password):
		return fmt.Errorf("%w: it is not UTF-8", ErrWeak)
	case n < leastPassword:
		return fmt.Errorf("%w: it has %d characters, and needs at least %d", ErrWeak, n, leastPassword)
	case n > mostPassword:
		return fmt.Errorf("%w: it has %d characters, and may have %d", ErrWeak, n, mostPassword)
	case len(name) > 2 && strings.Contains(lower, name):
		return fmt.Errorf("%w: it contains your e-mail address", ErrWeak)
	case isCommon(lower):
		return fmt.Errorf("%w: it is one of those that are tried first", ErrWeak)
	}
	return nil
}

// isCommon reports whether a password is common: whole, without what is not a letter at
// its ends, or as a repetition of one that is.
func isCommon(lower string) bool {
	core := strings.TrimFunc(lower, func(r rune) bool { return !unicode.IsLetter(r) })
	for _, p := range []string{lower, core} {
		if common()[p] {
			return true
		}
		for n := 1; n <= len(p)/2; n++ {
			if len(p)%n == 0 && strings.Repeat(p[:n], len(p)/n) == p && (n < 4 || common()[p[:n]]) {
				return true
			}
		}
	}
	return core == "" && strings.Trim(lower, "0123456789") == "" && isRun(lower)
}

// isRun reports whether each digit follows from the one before: 123456789012.
func isRun(digits string) bool {
	for i := 1; i < len(digits); i++ {
		if d := (digits[i] - digits[i-1] + 10) % 10; d != 1 && d != 9 {
			return false
		}
	}
	return true
}

// parameters of argon2id (RFC 9106): memory in KiB, passes, lanes.
type parameters struct {
	memory uint32
	passes uint32
	lanes  uint8
}

const (
	saltBytes = 16
	keyBytes  = 32

	// hashesAtOnce bounds the memory that hashing takes, and hashesWaiting those that
	// wait for it.
	hashesAtOnce  = 2
	hashesWaiting = 20
)

// hasher hashes passwords, a few at once.
type hasher struct {
	with  parameters
	slots chan struct{}
	queue chan struct{}
	dummy string        // of a password that nobody knows, to take as long where there is none
	spent atomic.Uint64 // work so far: KiB times passes
}

func newHasher(with parameters) *hasher {
	h := &hasher{with: with, slots: make(chan struct{}, hashesAtOnce), queue: make(chan struct{}, hashesAtOnce+hashesWaiting)}
	h.dummy = phc(with, make([]byte, saltBytes), make([]byte, keyBytes))
	return h
}

// enter waits for a slot, until leave is called. It is [ErrBusy] if too many wait.
func (h *hasher) enter(ctx context.Context) (leave func(), err error) {
	select {
	case h.queue <- struct{}{}:
	default:
		return nil, ErrBusy
	}
	select {
	case h.slots <- struct{}{}:
		return func() { <-h.slots; <-h.queue }, nil
	case <-ctx.Done():
		<-h.queue
		return nil, ctx.Err()
	}
}

// derive computes a key when there is a slot.
func (h *hasher) derive(ctx context.Context, password string, salt []byte, p parameters) ([]byte, error) {
	leave, err := h.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	h.spent.Add(uint64(p.memory) * uint64(p.passes))
	key := argon2.IDKey([]byte(password), salt, p.passes, p.memory, p.lanes, keyBytes)
	runtime.GC() // or the memory of hashes that have ended would double that of those to come
	return key, nil
}

// hash returns a password as it is stored: a PHC string.
func (h *hasher) hash(ctx context.Context, password string) (string, error) {
	salt := make([]byte, saltBytes)
	rand.Read(salt)
	key, err := h.derive(ctx, password, salt, h.with)
	if err != nil {
		return "", err
	}
	return phc(h.with, salt, key), nil
}

// verify compares a password with what is stored. Without anything stored it takes as
// long. old says that it is right and should be hashed again, with today's parameters.
func (h *hasher) verify(ctx context.Context, password, stored string) (right, old bool, err error) {
	if strings.HasPrefix(stored, "$2") {
		right, err = h.verifyImported(ctx, password, stored)
		return right, right, err
	}
	known := stored != ""
	if !known {
		stored = h.dummy
	}
	p, salt, want, err := parsePHC(stored)
	if err != nil {
		return false, false, err
	}
	got, err := h.derive(ctx, password, salt, p)
	if err != nil {
		return false, false, err
	}
	right = subtle.ConstantTimeCompare(got, want) == 1 && known
	return right, right && p != h.with, nil
}

// mostCost is up to which cost an imported hash is compared: each further one doubles the time.
const mostCost = 14

// verifyImported compares a password with a bcrypt hash, which the registry before this one has
// stored. It is replaced when the person has signed in.
func (h *hasher) verifyImported(ctx context.Context, password, stored string) (right bool, err error) {
	cost, err := bcrypt.Cost([]byte(stored))
	if err != nil || cost > mostCost {
		return false, errors.New("the stored hash is none of bcrypt that can be compared")
	}
	leave, err := h.enter(ctx)
	if err != nil {
		return false, err
	}
	defer leave()
	return bcrypt.CompareHashAndPassword([]byte(stored), []byte(password)) == nil, nil
}

func phc(p parameters, salt, key []byte) string {
	text := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, p.memory, p.passes, p.lanes, text(salt), text(key))
}

func parsePHC(text string) (p parameters, salt, key []byte, err error) {
	parts := strings.Split(text, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" || parts[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return p, nil, nil, errors.New("the stored hash is none of argon2id")
	}
	_, err = fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &p.memory, &p.passes, &p.lanes)
	if err == nil {
		salt, err = base64.RawStdEncoding.DecodeString(parts[4])
	}
	if err == nil {
		key, err = base64.RawStdEncoding.DecodeString(parts[5])
	}
	if err != nil || p.memory > 1<<20 || p.passes == 0 || p.passes > 16 || p.lanes == 0 || len(key) != keyBytes {
		return p, nil, nil, errors.New("the stored hash has parameters that are not possible")
	}
	return p, salt, key, nil
}
