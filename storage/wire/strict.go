package wire

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	smithy "github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// A strangeAnswer has the status of a success and is no answer to what was asked: a
// page of a proxy, or of a server that is none of S3. The SDK would read it as an
// answer in which everything that is optional is left out, such as an empty listing.
type strangeAnswer struct{ text string }

func (e *strangeAnswer) Error() string { return e.text }

// roots are the elements that answers consist of. Operations that are not here have
// answers without a body, or with the object's bytes.
func root(operation string) string {
	switch operation {
	case "ListObjectsV2":
		return "ListBucketResult"
	case "ListObjectVersions":
		return "ListVersionsResult"
	case "ListMultipartUploads":
		return "ListMultipartUploadsResult"
	case "ListParts":
		return "ListPartsResult"
	case "DeleteObjects":
		return "DeleteResult"
	case "CopyObject":
		return "CopyObjectResult"
	case "UploadPartCopy":
		return "CopyPartResult"
	case "CreateMultipartUpload":
		return "InitiateMultipartUploadResult"
	case "CompleteMultipartUpload":
		return "CompleteMultipartUploadResult"
	case "GetBucketCors":
		return "CORSConfiguration"
	case "GetBucketVersioning":
		return "VersioningConfiguration"
	}
	return ""
}

// strict has the SDK refuse what is not an answer of S3.
func strict(stack *middleware.Stack) error {
	return stack.Deserialize.Insert(middleware.DeserializeMiddlewareFunc("FarolAnswer", func(
		ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler,
	) (middleware.DeserializeOutput, middleware.Metadata, error) {
		out, metadata, err := next.HandleDeserialize(ctx, in)
		response, ok := out.RawResponse.(*smithyhttp.Response)
		if err == nil && ok && response.StatusCode >= http.StatusOK && response.StatusCode < http.StatusMultipleChoices {
			err = examine(awsmiddleware.GetOperationName(ctx), response.Response)
		}
		return out, metadata, err
	}), "OperationDeserializer", middleware.After)
}

// examine holds a success against what S3 always answers to an operation.
func examine(operation string, r *http.Response) error {
	want := root(operation)
	if want != "" {
		return beginsWith(want, r)
	}
	switch operation {
	case "HeadObject", "GetObject":
		switch {
		case r.Header.Get("Etag") == "":
			return &strangeAnswer{"the answer has no ETag"}
		case operation == "GetObject" && r.Header.Get("Content-Length") == "" && r.Body == http.NoBody:
			return errNoLength
		}
		return nil
	}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "text/html") && hasBody(r) {
		return &strangeAnswer{"the answer is a page of HTML"}
	}
	return nil
}

// hasBody reports whether an answer has content: that of OpenStack Swift to a PUT is of the type
// of a page, and empty.
func hasBody(r *http.Response) bool {
	if r.Request != nil && r.Request.Method == http.MethodHead {
		return r.ContentLength > 0 // which it would have to GET
	}
	first := make([]byte, 1)
	n, _ := io.ReadFull(r.Body, first) // a connection that breaks here is an answer without a body, which is whole
	if n > 0 {
		r.Body = replayed{io.MultiReader(bytes.NewReader(first), r.Body), r.Body}
	}
	return n > 0
}

// mostBeforeRoot bounds what is read in search of the first element. While it
// assembles an object, S3 sends a space now and then.
const mostBeforeRoot = 64 << 10

// beginsWith makes sure that the body's first element is the one of this name. It
// leaves the body as it was, and reads no more of it than that.
func beginsWith(name string, r *http.Response) error {
	var seen bytes.Buffer
	body := r.Body
	d := xml.NewDecoder(io.TeeReader(io.LimitReader(body, mostBeforeRoot), &seen))
	for {
		token, err := d.RawToken()
		var syntax *xml.SyntaxError
		switch {
		case errors.Is(err, io.EOF), errors.As(err, &syntax):
			return &strangeAnswer{fmt.Sprintf("the answer is not %s, and not XML", name)}
		case err != nil:
			return &smithy.DeserializationError{Err: err} // of the connection
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		if start.Name.Local != name {
			return &strangeAnswer{fmt.Sprintf("the answer is %q, and not %s", start.Name.Local, name)}
		}
		r.Body = replayed{io.MultiReader(&seen, body), body}
		return nil
	}
}

// replayed is a body whose beginning was read before.
type replayed struct {
	io.Reader
	io.Closer
}
