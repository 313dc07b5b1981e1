package table

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/farol-preservation/farol/internal/devstack"
)

// gateway sends requests that are signed and nothing else, so that the server's limit is
// measured and not the client's.
type gateway struct {
	endpoint, region string
	keys             aws.Credentials
	signer           *v4.Signer
	client           *http.Client
}

func newGateway(stack *devstack.Stack) (*gateway, error) {
	transport, err := stack.Gateway().Transport()
	if err != nil {
		return nil, err
	}
	transport.MaxIdleConnsPerHost, transport.WriteBufferSize, transport.ReadBufferSize = connections, 64<<10, 64<<10
	return &gateway{
		endpoint: stack.S3Endpoint, region: stack.Region,
		keys:   aws.Credentials{AccessKeyID: stack.AccessKeyID, SecretAccessKey: stack.SecretAccessKey},
		signer: v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }),
		client: &http.Client{Transport: transport},
	}, nil
}

// do sends a request with headers given as name and value, and returns the answer's body.
func (g *gateway) do(ctx context.Context, method, path string, body []byte, headers ...string) ([]byte, error) {
	const payload = "UNSIGNED-PAYLOAD" // TLS protects it
	r, err := http.NewRequestWithContext(ctx, method, g.endpoint+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("X-Amz-Content-Sha256", payload)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	if err := g.signer.SignHTTP(ctx, g.keys, r, payload, "s3", g.region, time.Now()); err != nil {
		return nil, err
	}
	answer, err := g.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close() //nolint:errcheck // it was read to its end
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, text)
	}
	return text, err
}

// createUpload begins an upload in parts and returns its id.
func (g *gateway) createUpload(ctx context.Context, path string) (string, error) {
	text, err := g.do(ctx, "POST", path+"?uploads=", nil)
	if err != nil {
		return "", err
	}
	var begun struct {
		UploadID string `xml:"UploadId"`
	}
	if err := xml.Unmarshal(text, &begun); err != nil {
		return "", fmt.Errorf("read the upload's id: %w", err)
	}
	return begun.UploadID, nil
}
