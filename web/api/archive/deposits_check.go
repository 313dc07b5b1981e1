package archive

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/api/answer"
	"github.com/farol-preservation/farol/web/ops"
)

const (
	// mostChecked is how many files a bag may have to be judged here: they take 512 bytes of
	// memory each.
	mostChecked = 150_000
	// mostOutline bounds an outline before it is compressed, in bytes, and checking the time.
	mostOutline = 512 << 20
	checking    = time.Minute
	// waitForCheck is how long a bag waits for the one that is being judged.
	waitForCheck = 10 * time.Second
)

type outlineBody struct {
	DepositName

	Size    int64  `json:"size" minimum:"0" maximum:"5497558138880" doc:"Of the tar in bytes"`
	Outline []byte `json:"outline" doc:"Pieces of the tar in their order, compressed by gzip, in base64: of each, its offset (8 bytes, big-endian), its length (4 bytes) and its bytes. They are all headers, the text files at the top of the bag, and the end"`
}

// depositChecks judges bags one after the other, so that their lists of files share memory.
func (a *handlers) depositChecks(t *ops.API, o ops.Operation) {
	o.Body, o.Answers = 16<<20, []int{http.StatusRequestEntityTooLarge}
	turn := make(chan struct{}, 1)
	ops.Register(t, o, func(ctx context.Context, c access.Caller, in *answer.Body[outlineBody]) (*answer.Body[bag.Verdict], error) {
		if _, _, err := a.depositor(ctx, c, in.Body.Institution); err != nil {
			return nil, err
		}
		waited := time.NewTimer(waitForCheck)
		defer waited.Stop()
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-waited.C:
			return nil, answer.Later("other bags are being judged; try again in a moment")
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		ctx, cancel := context.WithTimeout(ctx, checking)
		defer cancel()
		v, err := a.judge(ctx, in.Body)
		return answer.Of(v), err
	})
}

// judge is the verdict on a bag by its outline.
func (a *handlers) judge(ctx context.Context, b outlineBody) (bag.Verdict, error) {
	if f, ok := bag.JudgeName(b.Name); !ok {
		return bag.Verdict{Errors: []bag.Finding{f}, Warnings: []bag.Finding{}}, nil
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(b.Outline))
	if err != nil {
		return bag.Verdict{}, unjudged("the outline is not compressed by gzip")
	}
	outline := &io.LimitedReader{R: unzipped, N: mostOutline}
	most := min(a.Deposits.MaxFiles, mostChecked)
	read, err := bag.ReadOutline(ctx, outline, b.Size, bag.ReadOptions{MaxFiles: most})
	switch {
	case ctx.Err() != nil:
		return bag.Verdict{}, answer.Later("the bag could not be judged in time; try again, or upload it all the same")
	case outline.N == 0, read != nil && read.Cut() == "too-many-files" && most < a.Deposits.MaxFiles:
		return bag.Verdict{}, ops.Problem(http.StatusRequestEntityTooLarge, ops.CodeTooLarge, "the list of its files is too large for it to be judged here; it is judged after the upload")
	case errors.Is(err, bag.ErrOutline):
		return bag.Verdict{}, unjudged(err.Error())
	case err != nil: // of gzip
		return bag.Verdict{}, unjudged("the outline is damaged")
	}
	return read.Validate(a.Deposits.Profiles.Of(read)), nil
}

func unjudged(why string) error {
	return ops.Problem(http.StatusBadRequest, ops.CodeBadRequest, fmt.Sprintf("the bag cannot be judged: %s", why))
}
