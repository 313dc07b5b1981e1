package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/farol-preservation/farol/registry"
)

// CrashLog is a directory that outlives its process. The process notes its current files
// there, and Go writes the panic that ends it. Another worker of the same host reads it
// after this one has died. A nil log takes notes and keeps none. It is safe for concurrent
// use, if no two goroutines use the same slot.
type CrashLog struct {
	dir  string
	file *os.File
}

// Slots is how many items a crash log has notes of at once.
const Slots = 64

const (
	slotSize  = 1024 // bytes for one item's note
	filesFile = "files"
	crashFile = "crash"
)

// OpenCrashLog creates the crash log of this process and has Go write a panic to it. A
// process that cannot have one works without.
func OpenCrashLog(worker string) (*CrashLog, error) {
	r, err := createLog(worker)
	if err != nil {
		return nil, err
	}
	crash, err := os.OpenFile(filepath.Join(r.dir, crashFile), os.O_RDWR, 0o600)
	if err == nil {
		err = errors.Join(debug.SetCrashOutput(crash, debug.CrashOptions{}), crash.Close())
	}
	if err != nil {
		r.Close()
		return nil, fmt.Errorf("create a crash log: %w", err)
	}
	return r, nil
}

func createLog(worker string) (*CrashLog, error) {
	r := &CrashLog{dir: directoryOf(worker)}
	err := os.Mkdir(r.dir, 0o700)
	if err == nil {
		r.file, err = os.OpenFile(filepath.Join(r.dir, filesFile), os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o600)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(r.dir, crashFile), nil, 0o600)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create a crash log: %w", err), os.RemoveAll(r.dir))
	}
	for slot := range Slots { // no slot begins in a hole of the file
		r.Note(slot, 0, "")
	}
	return r, nil
}

// Note writes the current file of an item into a slot from 0 below [Slots]; 0 and "" empty
// the slot. It is one write, which survives the process, if not the machine.
func (r *CrashLog) Note(slot int, item int64, name string) {
	if r == nil {
		return
	}
	line := fmt.Sprintf("%d %q", item, name)
	if len(line) > slotSize-1 {
		end := name[max(0, len(name)-slotSize/8):] // the end identifies it better; a byte takes four at most
		for cut := 0; cut < utf8.UTFMax-1 && end != "" && !utf8.RuneStart(end[0]); cut++ {
			end = end[1:] // of a character whose beginning is cut off
		}
		line = fmt.Sprintf("%d %q", item, end)
	}
	note := make([]byte, slotSize)
	for i := range note {
		note[i] = ' '
	}
	copy(note, line)
	note[slotSize-1] = '\n'
	r.file.WriteAt(note, int64(slot)*slotSize) //nolint:errcheck // it is for the case that all else failed
}

// Close removes the log: the process ends in an orderly way.
func (r *CrashLog) Close() {
	if r == nil {
		return
	}
	debug.SetCrashOutput(nil, debug.CrashOptions{}) //nolint:errcheck // nothing is to be done about it
	r.file.Close()                                  //nolint:errcheck // what it holds is of no more use
	os.RemoveAll(r.dir)                             //nolint:errcheck // it is in the temporary directory
}

// directoryOf is where a worker of this host has its crash log.
func directoryOf(worker string) string {
	return filepath.Join(os.TempDir(), "farol-worker-"+filepath.Base(worker))
}

// FilesOf reads which files a dead worker was processing, by item.
func FilesOf(worker string) map[int64]string {
	files := map[int64]string{}
	for line := range strings.Lines(readLog(worker, filesFile)) {
		id, quoted, _ := strings.Cut(strings.TrimSpace(line), " ")
		item, idErr := strconv.ParseInt(id, 10, 64)
		name, nameErr := strconv.Unquote(quoted)
		if idErr == nil && nameErr == nil && name != "" {
			files[item] = registry.StorableText(name)
		}
	}
	return files
}

// panicOf is the first lines of the panic that ended a worker; "" if none did.
func panicOf(worker string) string {
	said, _, _ := strings.Cut(readLog(worker, crashFile), "\n\n") // what follows are the goroutines
	return strings.TrimSpace(said)
}

// readLog returns the beginning of a file of a worker's crash log, of 64 KiB at
// most; "" if there is none.
func readLog(worker, name string) string {
	file, err := os.Open(filepath.Join(directoryOf(worker), name))
	if err != nil {
		return ""
	}
	defer file.Close() //nolint:errcheck // it was only read
	content, err := io.ReadAll(io.LimitReader(file, 64<<10))
	if err != nil {
		return ""
	}
	return registry.StorableText(string(content))
}

// Discard removes the crash log of a dead worker, once it is in the ledger.
func Discard(worker string) {
	os.RemoveAll(directoryOf(worker)) //nolint:errcheck // it is in the temporary directory
}
