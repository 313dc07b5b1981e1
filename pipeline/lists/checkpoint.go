package lists

import (
	"encoding/json"

	"github.com/klauspost/compress/zstd"
)

// The names that Receive keeps its checkpoints under in Redis: those between
// files, each of which adds to the ones before, and the last one within a file.
const Checkpoints, Within = "checkpoints", "within"

func DecodeCheckpoint(z *zstd.Decoder, entry string, to any) error {
	line, err := z.DecodeAll([]byte(entry), nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(line, to)
}
