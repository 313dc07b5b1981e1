package settings

import "github.com/farol-preservation/farol/internal/process/scalein"

// ScaleIn is how a platform learns that a worker has items in progress.
type ScaleIn struct {
	Protection string `env:"FAROL_SCALE_IN_PROTECTION" envDefault:"auto" is:"auto or off" oneof:"auto off" doc:"Protection of a worker that has items in progress, when the platform stops some of several: by ECS task protection, or by the pod-deletion cost of Kubernetes if FAROL_POD_NAME is set"`
	Agent      string `env:"ECS_AGENT_URI" is:"an http(s) URL" doc:"Agent of ECS, which sets it"`
	Pod        string `env:"FAROL_POD_NAME" is:"the name of a pod" doc:"Pod of Kubernetes that the process runs in (metadata.name), whose service account may patch it"`
	APIHost    string `env:"KUBERNETES_SERVICE_HOST" is:"a host" doc:"API server of Kubernetes, which sets it"`
	APIPort    string `env:"KUBERNETES_SERVICE_PORT" envDefault:"443" is:"a port" doc:"Port of that server"`
}

// Platform is whom to tell.
func (c ScaleIn) Platform() scalein.Platform {
	if c.Protection == "off" {
		return scalein.Platform{}
	}
	return scalein.Platform{Agent: c.Agent, Pod: c.Pod, APIHost: c.APIHost, APIPort: c.APIPort}
}
