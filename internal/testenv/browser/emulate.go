package browser

import (
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
)

// Size sets the size of the window in CSS pixels.
func (b *Tab) Size(width, height int64) {
	b.t.Helper()
	must(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1})
}

// Dark sets which colour scheme the person prefers. Nothing moves in either: a page is
// always looked at in its last state.
func (b *Tab) Dark(dark bool) {
	b.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	must(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
}

// Script says whether the pages that are opened from now on may run scripts.
func (b *Tab) Script(on bool) {
	b.t.Helper()
	b.plain = !on
	must(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on})
}

// Line is a connection to the network.
type Line string

// The lines: Slow is a bad connection of a phone, with 400 ms and 50 kB a second.
const (
	Fast Line = "fast"
	Slow Line = "slow"
	Cut  Line = "cut"
)

// Network gives the tab another line.
func (b *Tab) Network(line Line) {
	b.t.Helper()
	must(b, network.Enable, network.EnableParams{})
	c := network.Conditions{DownloadThroughput: -1, UploadThroughput: -1, Offline: line == Cut}
	if line == Slow {
		c.Latency, c.DownloadThroughput, c.UploadThroughput = 400, 50e3, 50e3
	}
	must(b, network.EmulateNetworkConditionsByRule, network.EmulateNetworkConditionsByRuleParams{MatchedNetworkConditions: []*network.Conditions{&c}})
	must(b, network.OverrideNetworkState, network.OverrideNetworkStateParams{
		Offline: c.Offline, Latency: c.Latency, DownloadThroughput: c.DownloadThroughput, UploadThroughput: c.UploadThroughput,
	})
}
