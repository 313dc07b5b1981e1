package console

import (
	"fmt"
	"time"

	"github.com/farol-preservation/farol/record"
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

// deposit shows the page on which a script uploads a bag. The script may send to the S3
// service only here.
func (p *Pages) deposit(v *visit) (any, error) {
	d := depositPage{AllScopes: v.Caller.Scope.All()}
	bucket, endpoint := "RECEIVING-BUCKET", ""
	if id, _ := v.Caller.Scope.Institution(); id != 0 {
		in, err := get[record.Institution](v, fmt.Sprint("institutions/", id), nil)
		if err != nil {
			return nil, err
		}
		bucket = in.ReceivingBucket
		found, note := optional[listOf[openUpload]](v, "deposits", nil)
		if d.Note = note; found != nil {
			d.Open = found.Items
		}
	}
	if v.connect = p.api.Deposits.Endpoint; v.connect != "" {
		endpoint = " --endpoint-url " + v.connect
	}
	d.Command = "aws s3 cp photographs.tar s3://" + bucket + "/" + endpoint
	return d, nil
}
