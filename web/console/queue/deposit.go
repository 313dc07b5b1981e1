package queue

import (
	"fmt"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/web/console/frame"
)

// depositPage is where a bag is uploaded.
type depositPage struct {
	AllScopes bool
	Command   string // of an S3 client
	Note      string // why nothing can be uploaded here
	Open      []openUpload
}

// openUpload is an upload that was begun and not finished.
type openUpload struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	BegunAt time.Time `json:"begun_at"`
}

// loadDeposit shows the page on which a script uploads a bag. The script may send to the S3
// service only here.
func loadDeposit(v *frame.Visit) (any, error) {
	d := depositPage{AllScopes: v.Caller.Scope.All()}
	bucket, endpoint := "RECEIVING-BUCKET", ""
	if id, _ := v.Caller.Scope.Institution(); id != 0 {
		in, err := frame.Get[record.Institution](v, fmt.Sprint("institutions/", id), nil)
		if err != nil {
			return nil, err
		}
		bucket = in.ReceivingBucket
		found, note := frame.Optional[frame.List[openUpload]](v, "deposits", nil)
		if d.Note = note; found != nil {
			d.Open = found.Items
		}
	}
	if v.Connect = v.Frame.API.Deposits.Endpoint; v.Connect != "" {
		endpoint = " --endpoint-url " + v.Connect
	}
	d.Command = "aws s3 cp photographs.tar s3://" + bucket + "/" + endpoint
	return d, nil
}
