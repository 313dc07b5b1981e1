// Package events reads S3 event notifications, and takes them from a queue of SQS.
//
// What sends one is not trusted: an event names buckets, and nothing else of it is used.
package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// notification has what the forms of a notification have in common with none: S3's own, the
// same within a message of SNS, and EventBridge's.
type notification struct {
	Records []struct {
		EventName string `json:"eventName"`
		S3        struct {
			Bucket bucket `json:"bucket"`
		} `json:"s3"`
	} `json:"Records"`
	Event string `json:"Event"` // of S3, which sends s3:TestEvent when a notification is set up

	Type    string `json:"Type"` // of SNS
	Message string `json:"Message"`

	DetailType string `json:"detail-type"` // of EventBridge
	Detail     struct {
		Bucket bucket `json:"bucket"`
	} `json:"detail"`
}

type bucket struct {
	Name string `json:"name"`
}

// Buckets returns the buckets in which a notification says that objects were created; none if it
// is a test, or says something else. The error has no part of the notification.
func Buckets(text []byte) ([]string, error) {
	n, err := read(text)
	if err == nil && n.Type == "Notification" {
		n, err = read([]byte(n.Message))
	}
	if err != nil {
		return nil, err
	}
	var names []string
	switch {
	case n.DetailType == "Object Created":
		names = []string{n.Detail.Bucket.Name}
	case len(n.Records) > 0:
		for _, r := range n.Records {
			// AWS leaves out the prefix that MinIO and Ceph write.
			if strings.HasPrefix(strings.TrimPrefix(r.EventName, "s3:"), "ObjectCreated:") {
				names = append(names, r.S3.Bucket.Name)
			}
		}
	case n.Event != "s3:TestEvent" && n.DetailType == "":
		return nil, errors.New("it is no S3 event notification: it has neither Records nor detail-type")
	}
	if slices.ContainsFunc(names, func(name string) bool { return name == "" || len(name) > mostName }) {
		return nil, errors.New("it names no bucket, or one whose name is too long")
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// mostName is how long the name of a bucket may be: that of the oldest ones of AWS.
const mostName = 255

func read(text []byte) (n notification, err error) {
	if err := json.Unmarshal(text, &n); err != nil {
		var mistyped *json.UnmarshalTypeError
		if errors.As(err, &mistyped) {
			return n, fmt.Errorf("it is no S3 event notification: %q has the wrong type", mistyped.Field)
		}
		return n, errors.New("it is no S3 event notification: it is not valid JSON")
	}
	return n, nil
}
