package browser

// Size sets the size of the window in CSS pixels.
func (b *Tab) Size(width, height int64) {
	b.t.Helper()
	must[empty](b, "Emulation.setDeviceMetricsOverride", params{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false})
}

// Dark sets which colour scheme the person prefers. Nothing moves in either: a page is
// always looked at in its last state.
func (b *Tab) Dark(dark bool) {
	b.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	must[empty](b, "Emulation.setEmulatedMedia", params{"features": []params{
		{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"},
	}})
}

// Script says whether the pages that are opened from now on may run scripts.
func (b *Tab) Script(on bool) {
	b.t.Helper()
	b.plain = !on
	must[empty](b, "Emulation.setScriptExecutionDisabled", params{"value": !on})
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
	must[empty](b, "Network.enable", params{})
	conditions := params{"offline": line == Cut, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
	if line == Slow {
		conditions = params{"offline": false, "latency": 400, "downloadThroughput": 50e3, "uploadThroughput": 50e3}
	}
	must[empty](b, "Network.overrideNetworkState", conditions)
	conditions["urlPattern"] = "" // of all addresses
	must[empty](b, "Network.emulateNetworkConditionsByRule", params{"matchedNetworkConditions": []params{conditions}})
}
