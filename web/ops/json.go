package ops

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json/jsontext"
)

// jsonFormat reads JSON whose every value counts: of a name that is there twice, and of a
// text that is not UTF-8, no part is dropped or replaced.
func jsonFormat() huma.Format {
	return huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: readJSON}
}

func readJSON(data []byte, v any) error {
	if _, err := jsontext.NewDecoder(bytes.NewReader(data)).ReadValue(); err != nil {
		return fmt.Errorf("it is not valid JSON: %s", strings.TrimPrefix(err.Error(), "jsontext: "))
	}
	err := json.Unmarshal(data, v)
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong):
		return fmt.Errorf("%s is a %s that cannot be taken here", wrong.Field, wrong.Value)
	case err != nil:
		return fmt.Errorf("it is not valid JSON: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}
