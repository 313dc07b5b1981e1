package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// processExperiments harm workers.
func processExperiments() []experiment {
	return []experiment{
		trial("none", "nothing fails", "no fault, for comparison", 0, nil).inShort().
			prepared(func(s *site) error { s.workers[len(s.workers)-1].Env["TZ"] = "Pacific/Chatham"; return nil }),
		trial("kill-9", "a random worker is killed (SIGKILL) every 2 s while there is work, for a minute at most", "nothing lost or done twice; attempts may be used up", 0,
			untilDone(time.Minute, kills())).inShort().spends(),
		trial("kill-all", "all workers are killed at once, three times, 12 s apart", "nothing lost or done twice; attempts may be used up", 0,
			hold(38*time.Second, repeated("kill", 12*time.Second, func(_ context.Context, s *site) error {
				for _, p := range s.workers {
					p.Signal(syscall.SIGKILL)
				}
				return nil
			}))).spends(),
		trial("sigterm-30", "all workers get SIGTERM and, 30 s later, SIGKILL, three times, while large files come slowly; 3 large bags", "no attempt used up", 0.02,
			during(inTurn(s30, s30, s30), onS3(all, func(s *site) *rule {
				return trickle(400 << 10).when(isRead).in(s.Receiving()...)
			}))).prepared((*site).defaultGrace).of(func(bags int) mix { return mix{Bags: bags, Large: 3, Many: 1} }),
		trial("stop-continue", "one worker is suspended (SIGSTOP) for 45 s, longer than a lease, and continued", "other workers process its items; it records nothing late", 0.1,
			hold(45*time.Second, once("stop", signalFirst(syscall.SIGSTOP), signalFirst(syscall.SIGCONT)))).spends(),
		trial("one-full-disk", "one worker's TMPDIR is full for 30 s", "no attempt used up; it continues when there is free space", 0.05,
			hold(30*time.Second, once("full disk", fillDisk, freeDisk))).prepared(func(s *site) error { s.workers[0].onSmallDisk(filepath.Join(s.Dir, "small")); return nil }),
		trial("one-small-memory", "one worker's control group allows 208 MiB; one bag has 25,000 files", "the others process that bag; the kernel kills no process", 0, nil).
			prepared(func(s *site) error { return s.inSmallMemory(s.workers[0], 208<<20) }).of(func(bags int) mix { return mix{Bags: bags, Large: 1, Many: 1, Files: 25_000} }),
	}
}

// settingsExperiments set one worker up wrongly.
func settingsExperiments() []experiment {
	wrong := func(change func(*site, map[string]string)) func(*site) error {
		return func(s *site) error { change(s, s.workers[0].Env); return nil }
	}
	return []experiment{
		trial("one-wrong-secret", "one worker starts with a wrong S3 secret", "the others process all bags", 0, nil).inShort().
			prepared(wrong(func(_ *site, env map[string]string) { env["AWS_SECRET_ACCESS_KEY"] = "wrong" })),
		trial("one-wrong-bucket", "one worker starts with the name of a target's bucket that is not there", "the others process all bags", 0, nil).
			prepared(wrong(func(s *site, env map[string]string) {
				env["FAROL_TARGET_STANDARD_VA_BUCKET"] = s.Bucket("mistyped")
			})),
		trial("one-wrong-staging", "one worker starts with the name of a staging bucket that is not there", "the others process all bags", 0, nil).
			prepared(wrong(func(s *site, env map[string]string) { env["FAROL_STAGING_BUCKET"] = s.Bucket("mistyped-staging") })).of(listed),
		trial("one-wrong-endpoint", "one worker starts with an S3 endpoint where nobody listens", "the others process all bags", 0, nil).
			prepared(wrong(func(_ *site, env map[string]string) { env["FAROL_S3_ENDPOINT"] = "https://127.0.0.1:9" })),
		trial("one-wrong-name", "one worker, in another time zone, starts with an S3 host name that DNS does not know", "the others process all bags", 0, nil).
			prepared(wrong(func(_ *site, env map[string]string) {
				env["FAROL_S3_ENDPOINT"], env["TZ"] = "https://s3.chaos.invalid", "Asia/Kathmandu"
			})),
	}
}

// defaultGrace leaves it to the workers how long they go on after SIGTERM.
func (s *site) defaultGrace() error {
	for _, p := range s.workers {
		delete(p.Env, "FAROL_GRACE")
	}
	return nil
}

// s30 asks all workers to stop and kills those that have not stopped after 30 s, as ECS and
// Kubernetes do. They start again.
func s30(ctx context.Context, s *site) error {
	was := map[*process]int{}
	for _, p := range s.workers {
		was[p] = p.Pid()
		p.Signal(syscall.SIGTERM)
	}
	asked := func() bool {
		return slices.ContainsFunc(s.workers, func(p *process) bool { return p.Pid() == was[p] })
	}
	if _, err := poll(ctx, 30*time.Second, func() (bool, error) { return !asked(), nil }); err != nil {
		return err
	}
	for _, p := range s.workers {
		if p.Pid() == was[p] {
			p.Signal(syscall.SIGKILL)
		}
	}
	return sleep(ctx, 5*time.Second)
}

func signalFirst(sig syscall.Signal) step {
	return func(_ context.Context, s *site) error {
		s.workers[0].Signal(sig)
		return nil
	}
}

// onSmallDisk gives the process a file system of 200 MiB for its TMPDIR, in a mount
// namespace of its own, which ends with it. Any user may do that where user
// namespaces are allowed.
func (p *process) onSmallDisk(dir string) {
	flags := "-m"
	if os.Geteuid() != 0 {
		flags = "-Urm"
	}
	p.Env["TMPDIR"] = dir
	p.within("unshare", flags, "sh", "-c", `mkdir -p "$TMPDIR" && mount -t tmpfs -o size=200m chaos "$TMPDIR" && exec "$@"`, "sh")
}

// within has another program start the process.
func (p *process) within(command ...string) {
	p.Args = slices.Concat(command, []string{p.Binary}, p.Args)
	p.Binary = "/usr/bin/env"
}

// inSmallMemory gives the process a control group of its own with so much memory.
// The machine's administrator may do that, under either version of control groups.
func (s *site) inSmallMemory(p *process, limit int64) error {
	root, file := "/sys/fs/cgroup", "memory.max"
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err != nil {
		root, file = filepath.Join(root, "memory"), "memory.limit_in_bytes"
	}
	group := filepath.Join(root, "farol-"+s.Name)
	if err := os.Mkdir(group, 0o755); err != nil { //nolint:gosec // as the kernel's own
		return fmt.Errorf("make a control group, which takes an administrator: %w", err)
	}
	s.after = append(s.after, func(context.Context) error { return os.Remove(group) })
	if err := os.WriteFile(filepath.Join(group, file), fmt.Append(nil, limit), 0o600); err != nil {
		return fmt.Errorf("limit the memory: %w", err)
	}
	p.within("sh", "-c", `echo $$ > "$0" && exec "$@"`, filepath.Join(group, "cgroup.procs"))
	return nil
}

// filler is a file on the first worker's disk, as seen from outside of its namespace.
func filler(s *site) string {
	return filepath.Join("/proc", fmt.Sprint(s.workers[0].Pid()), "root", s.workers[0].Env["TMPDIR"], "filler")
}

func fillDisk(_ context.Context, s *site) error {
	f, err := os.Create(filler(s))
	if err != nil {
		return fmt.Errorf("fill the disk: %w", err)
	}
	defer f.Close() //nolint:errcheck // it is to be full
	block := make([]byte, 64<<10)
	for range 256 << 20 / len(block) {
		if _, err := f.Write(block); err != nil {
			return nil //nolint:nilerr // it is full, as it should be
		}
	}
	return fmt.Errorf("the disk of %s is larger than it should be", s.workers[0].Name)
}

func freeDisk(_ context.Context, s *site) error {
	if err := os.Remove(filler(s)); err != nil {
		s.note("the worker's disk could not be freed, since it has restarted: %v", err)
	}
	return nil
}

// kills kills a random worker now and then.
func kills() fault {
	return repeated("kill", 2*time.Second, func(_ context.Context, s *site) error {
		s.workers[s.rng.IntN(len(s.workers))].Signal(syscall.SIGKILL)
		return nil
	})
}
