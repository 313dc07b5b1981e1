// Package rig has what the programs that measure Farol share: its programs as users run them,
// the settings of a stack, and their own command lines.
package rig

import (
	"fmt"
	"os"
	"strings"

	"github.com/farol-preservation/farol/storage"
)

// Env reads the settings that a stack has written for other programs.
func Env(file string) (map[string]string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the settings of the stack: %w", err)
	}
	env := map[string]string{}
	for line := range strings.Lines(string(content)) {
		if k, v, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "="); ok {
			env[k] = strings.Trim(v, "'")
		}
	}
	return env, nil
}

// Receiving opens the receiving bucket of the institution that a stack begins with.
func Receiving(env map[string]string) (*storage.Bucket, error) {
	return storage.NewClient(storage.Options{}).Bucket(storage.Target{
		Bucket: "aptrust.receiving.test.edu", Endpoint: env["FAROL_S3_ENDPOINT"], CAFile: env["FAROL_S3_CA_FILE"],
		Region: env["AWS_REGION"], AccessKeyID: env["AWS_ACCESS_KEY_ID"],
		SecretAccessKey: storage.Secret(env["AWS_SECRET_ACCESS_KEY"]), PathStyle: true,
	})
}
