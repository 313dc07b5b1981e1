package lists

import (
	"github.com/go-json-experiment/json"
	"github.com/klauspost/compress/zstd"
)

// The names that Receive keeps its checkpoints under in Redis.
const (
	Checkpoints = "checkpoints" // between files; each adds to the ones before
	Within      = "within"      // the last one within a file
)

// DecodeCheckpoint reads what Receive keeps in Redis.
func DecodeCheckpoint(z *zstd.Decoder, entry string, to any) error {
	line, err := z.DecodeAll([]byte(entry), nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(line, to)
}
