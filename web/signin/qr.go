package signin

import (
	"fmt"
	"html/template"
	"image/color"
	"strings"

	"github.com/boombuler/barcode/qr"
)

// quiet is the width of the margin around a code, in modules (ISO/IEC 18004).
const quiet = 4

// qrSVG draws a QR code as one path.
func qrSVG(text string) (template.HTML, error) {
	code, err := qr.Encode(text, qr.M, qr.Auto)
	if err != nil {
		return "", fmt.Errorf("draw a QR code: %w", err)
	}
	var path strings.Builder
	size := code.Bounds().Dx()
	for y := range size {
		for x := range size {
			if color.GrayModel.Convert(code.At(x, y)) == (color.Gray{}) {
				fmt.Fprintf(&path, "M%d %dh1v1h-1z", x+quiet, y+quiet)
			}
		}
	}
	return template.HTML(fmt.Sprintf( //nolint:gosec // numbers only
		`<svg class="qr" role="img" aria-label="QR code with the key below" viewBox="0 0 %[1]d %[1]d"><rect class="paper" width="%[1]d" height="%[1]d"/><path class="ink" d="%[2]s"/></svg>`,
		size+2*quiet, path.String())), nil
}
