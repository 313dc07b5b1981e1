package people

import (
	"context"
	"fmt"

	"github.com/farol-preservation/farol/registry"
)

// SetTOTP sets a second factor, sealed, with the recovery codes that replace it, each once.
// step is that of the code that has proved it, which is used up. All sessions of the person
// end but one. p is the person as the proof was judged: if the second factor has changed
// since, the error is ErrNotFound.
func (r Records) SetTOTP(ctx context.Context, p Person, session int64, sealed []byte, step int64, codes []string) error {
	digests := make([][]byte, len(codes))
	for i, code := range codes {
		digests[i] = digest(code)
	}
	tag, err := r.db.Exec(ctx, `
		WITH mine AS (UPDATE users SET totp_sealed = $2, totp_last_step = $3 WHERE id = $1 AND totp_sealed IS NOT DISTINCT FROM $4 RETURNING id),
			codes AS (DELETE FROM recovery_codes WHERE user_id IN (SELECT id FROM mine)),
			ended AS (DELETE FROM sessions WHERE user_id IN (SELECT id FROM mine) AND id <> $5)
		INSERT INTO recovery_codes (user_id, digest) SELECT id, unnest($6::bytea[]) FROM mine`, p.ID, sealed, step, p.SealedTOTP, session, digests)
	if err == nil && tag.RowsAffected() == 0 {
		err = registry.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("set a second factor: %w", registry.Refusal(err))
	}
	return nil
}

// RemoveTOTP removes the second factor of a person who has lost it, with its recovery codes,
// ends all sessions of the person, and alerts them to who did it.
func (r Records) RemoveTOTP(ctx context.Context, user int64, by string) error {
	_, err := r.db.Exec(ctx, `
		WITH codes AS (DELETE FROM recovery_codes WHERE user_id = $1), ended AS (DELETE FROM sessions WHERE user_id = $1)
		UPDATE users SET totp_sealed = NULL, totp_last_step = 0 WHERE id = $1`, user)
	if err != nil {
		return fmt.Errorf("remove a second factor: %w", registry.Refusal(err))
	}
	return r.Alert(ctx, user, "Second Factor Changed", "Your second factor was removed",
		"Your second factor was removed by "+by+". You set up a new one when you sign in. If you did not ask for that, contact the archive's staff at once.")
}

// UseStep uses up a 30-second step. It is false if that step, or a later one, was used: a
// code that was overheard is of no use.
func (r Records) UseStep(ctx context.Context, user, step int64) (bool, error) {
	tag, err := r.db.Exec(ctx, `UPDATE users SET totp_last_step = $2 WHERE id = $1 AND totp_last_step < $2`, user, step)
	if err != nil {
		return false, fmt.Errorf("use a code: %w", registry.Refusal(err))
	}
	return tag.RowsAffected() == 1, nil
}

// UseRecoveryCode uses up a recovery code. It is false if there is none such, or it was used.
func (r Records) UseRecoveryCode(ctx context.Context, user int64, code string) (bool, error) {
	tag, err := r.db.Exec(ctx, `UPDATE recovery_codes SET used_at = now() WHERE user_id = $1 AND digest = $2 AND used_at IS NULL`, user, digest(code))
	if err != nil {
		return false, fmt.Errorf("use a recovery code: %w", registry.Refusal(err))
	}
	return tag.RowsAffected() == 1, nil
}
