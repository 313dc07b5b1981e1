package table

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/internal/rigs/devstack"
)

// Others move the same bytes into two buckets, and do nothing else: no digest is computed
// but what S3 asks for, nothing is validated, and nothing is put on record.
const (
	plainClient  = "plain client"   // reads each tar once and sends it twice
	rcloneClient = "rclone"         // reads each tar twice and sends it twice
	rcloneServer = "rclone, server" // has the server copy
)

func moverNames() []string { return []string{plainClient, rcloneClient, rcloneServer} }

// mover is a client of the S3 server of a stack.
type mover struct {
	env map[string]string
	s3  *s3.Client
	to  [2]string // buckets
}

// movedByOthers is how long others take for the tars in a bucket, in seconds.
func movedByOthers(ctx context.Context, env map[string]string, receiving string) (took map[string]float64, err error) {
	m := mover{env: env, to: [2]string{"moved-once", "moved-twice"}}
	gateway := devstack.GatewayOf(env)
	transport, err := gateway.Transport()
	if err != nil {
		return nil, err
	}
	m.s3 = gateway.Client(transport)
	for _, bucket := range m.to {
		if _, err := m.s3.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: &bucket}); err != nil {
			return nil, fmt.Errorf("make the bucket %s: %w", bucket, err)
		}
	}
	took = map[string]float64{}
	for _, name := range moverNames() {
		if _, err := exec.LookPath("rclone"); err != nil && name != plainClient {
			continue
		}
		began := time.Now()
		err := m.move(ctx, name, receiving)
		took[name] = time.Since(began).Seconds()
		if err = errors.Join(err, m.empty(ctx)); err != nil {
			return nil, fmt.Errorf("have %s move the bytes: %w", name, err)
		}
	}
	return took, nil
}

func (m *mover) move(ctx context.Context, name, receiving string) error {
	switch name {
	case rcloneClient:
		return errors.Join(m.rclone(ctx, "a:"+receiving, "b:"+m.to[0]), m.rclone(ctx, "a:"+receiving, "b:"+m.to[1]))
	case rcloneServer:
		return errors.Join(m.rclone(ctx, "a:"+receiving, "a:"+m.to[0]), m.rclone(ctx, "a:"+receiving, "a:"+m.to[1]))
	}
	list, err := m.s3.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &receiving})
	if err != nil {
		return fmt.Errorf("list the tars: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, o := range list.Contents {
		group.Go(func() error { return m.send(ctx, receiving, *o.Key) })
	}
	return group.Wait()
}

// rclone copies a bucket. Between two names of one server it reads and sends the bytes, under
// one name it has the server copy them.
func (m *mover) rclone(ctx context.Context, from, to string) error {
	cmd := exec.CommandContext(ctx, "rclone", "copy", from, to, "--ca-cert", m.env["FAROL_S3_CA_FILE"], "--config", os.DevNull)
	cmd.Env = []string{"HOME=" + os.DevNull} // no setting of this account
	for _, name := range []string{"A", "B"} {
		for option, value := range map[string]string{
			"TYPE": "s3", "PROVIDER": "Other", "ENDPOINT": m.env["FAROL_S3_ENDPOINT"], "REGION": m.env["AWS_REGION"], "FORCE_PATH_STYLE": "true",
			"ACCESS_KEY_ID": m.env["AWS_ACCESS_KEY_ID"], "SECRET_ACCESS_KEY": m.env["AWS_SECRET_ACCESS_KEY"],
		} {
			cmd.Env = append(cmd.Env, "RCLONE_CONFIG_"+name+"_"+option+"="+value)
		}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("rclone copy %s %s: %w: %s", from, to, err, out)
	}
	return nil
}

// send reads a tar once and sends each part of it to both buckets at once.
func (m *mover) send(ctx context.Context, receiving, key string) error {
	var uploads [len(m.to)]*s3.CreateMultipartUploadOutput
	var done [len(m.to)][]types.CompletedPart
	for i := range m.to {
		var err error
		if uploads[i], err = m.s3.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: &m.to[i], Key: &key}); err != nil {
			return fmt.Errorf("begin an upload: %w", err)
		}
	}
	tar, err := m.s3.GetObject(ctx, &s3.GetObjectInput{Bucket: &receiving, Key: &key})
	if err != nil {
		return fmt.Errorf("read a tar: %w", err)
	}
	defer tar.Body.Close() //nolint:errcheck // it was read to its end
	part := make([]byte, partSize)
	for number := int32(1); ; number++ {
		n, err := io.ReadFull(tar.Body, part)
		if n == 0 {
			break
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("read a tar: %w", err)
		}
		group, ctx := errgroup.WithContext(ctx)
		for i := range m.to {
			group.Go(func() error {
				out, err := m.s3.UploadPart(ctx, &s3.UploadPartInput{
					Bucket: &m.to[i], Key: &key, UploadId: uploads[i].UploadId, PartNumber: &number, Body: bytes.NewReader(part[:n]),
				})
				if err != nil {
					return fmt.Errorf("send a part: %w", err)
				}
				done[i] = append(done[i], types.CompletedPart{PartNumber: aws.Int32(number), ETag: out.ETag, ChecksumCRC32: out.ChecksumCRC32})
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	for i := range m.to {
		if _, err := m.s3.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
			Bucket: &m.to[i], Key: &key, UploadId: uploads[i].UploadId, MultipartUpload: &types.CompletedMultipartUpload{Parts: done[i]},
		}); err != nil {
			return fmt.Errorf("end an upload: %w", err)
		}
	}
	return nil
}

func (m *mover) empty(ctx context.Context) error {
	for _, bucket := range m.to {
		list, err := m.s3.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &bucket})
		if err != nil {
			return fmt.Errorf("list what was moved: %w", err)
		}
		for _, o := range list.Contents {
			if _, err := m.s3.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &bucket, Key: o.Key}); err != nil {
				return fmt.Errorf("delete what was moved: %w", err)
			}
		}
	}
	return nil
}
