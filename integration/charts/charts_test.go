// Package charts validates the recipes for Kubernetes and Docker Compose with the types and the
// loader of those projects. It is a module of its own, so that Junction does not require theirs.
package charts

import (
	"context"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	chartloader "helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write kubernetes.yaml again")

const recipes = "../../cmd/junction/deploy"

// render returns what helm makes of a template of the chart.
func render(t *testing.T, values map[string]any, template string) string {
	t.Helper()
	c, err := chartloader.Load(filepath.Join(recipes, "helm"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: "junction", Namespace: "default"},
		chartutil.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(c, all)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimLeft(files["junction/templates/"+template+".yaml"], "\n")
}

// objects decodes the documents strictly: a key that Kubernetes does not know is an error.
func objects(t *testing.T, text string) (all map[string]any) {
	t.Helper()
	all = map[string]any{}
	for _, document := range strings.Split("\n"+text, "\n---\n") {
		if strings.TrimSpace(document) == "" {
			continue
		}
		var head struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal([]byte(document), &head); err != nil {
			t.Fatal(err)
		}
		into := map[string]any{"v1 ConfigMap": &corev1.ConfigMap{}, "v1 Service": &corev1.Service{},
			"apps/v1 Deployment": &appsv1.Deployment{}, "policy/v1 PodDisruptionBudget": &policyv1.PodDisruptionBudget{},
			"networking.k8s.io/v1 NetworkPolicy": &networkingv1.NetworkPolicy{}, "networking.k8s.io/v1 Ingress": &networkingv1.Ingress{},
			"batch/v1 Job": &batchv1.Job{}, "autoscaling/v2 HorizontalPodAutoscaler": &autoscalingv2.HorizontalPodAutoscaler{},
			"monitoring.coreos.com/v1 ServiceMonitor": &monitoringv1.ServiceMonitor{}}[head.APIVersion+" "+head.Kind]
		if into == nil {
			t.Fatalf("there is no %s %s", head.APIVersion, head.Kind)
		}
		if err := yaml.UnmarshalStrict([]byte(document), into); err != nil {
			t.Errorf("%s: %v", head.Kind, err)
		}
		all[head.Kind] = into
	}
	return all
}

// TestOperateRecipeOfKubernetes: the chart renders to kubernetes.yaml, its objects are those of
// Kubernetes, and they fit together.
func TestOperateRecipeOfKubernetes(t *testing.T) {
	text, file := render(t, nil, "junction"), filepath.Join(recipes, "kubernetes.yaml")
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || string(want) != text {
		t.Errorf("kubernetes.yaml is not what the chart renders (%v): write it again with -update", err)
	}
	all := objects(t, text)
	d := all["Deployment"].(*appsv1.Deployment)
	c := d.Spec.Template.Spec.Containers[0]
	ports := map[string]int32{}
	for _, p := range c.Ports {
		ports[p.Name] = p.ContainerPort
	}
	for _, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		if ports[probe.HTTPGet.Port.StrVal] != 8421 {
			t.Errorf("a probe asks the port %s of %v, want that of admin", probe.HTTPGet.Port.StrVal, ports)
		}
	}
	if s := all["Service"].(*corev1.Service); ports[s.Spec.Ports[0].TargetPort.StrVal] != 8420 {
		t.Errorf("the service leads to %+v of %v, want the port of listen", s.Spec.Ports, ports)
	}
	volumes := map[string]bool{}
	for _, v := range d.Spec.Template.Spec.Volumes {
		volumes[v.Name] = true
	}
	for _, m := range c.VolumeMounts {
		if !volumes[m.Name] {
			t.Errorf("there is no volume %s", m.Name)
		}
	}
	labels := d.Spec.Template.Labels
	for what, selector := range map[string]map[string]string{
		"deployment": d.Spec.Selector.MatchLabels,
		"service":    all["Service"].(*corev1.Service).Spec.Selector,
		"budget":     all["PodDisruptionBudget"].(*policyv1.PodDisruptionBudget).Spec.Selector.MatchLabels,
		"policy":     all["NetworkPolicy"].(*networkingv1.NetworkPolicy).Spec.PodSelector.MatchLabels,
	} {
		if len(selector) == 0 {
			t.Errorf("the %s selects everything", what)
		}
		for k, v := range selector {
			if labels[k] != v {
				t.Errorf("the %s selects %s=%s, and the pods have %v", what, k, v, labels)
			}
		}
	}
	policy := all["NetworkPolicy"].(*networkingv1.NetworkPolicy)
	if in := policy.Spec.Ingress; ports["replicas"] != 8422 || len(in) != 3 || in[2].Ports[0].Port.StrVal != "replicas" ||
		len(in[2].From[0].PodSelector.MatchLabels) == 0 {
		t.Errorf("the pods cannot reach each other at %v, or others can: %+v", ports, in)
	} else if in[1].Ports[0].Port.StrVal != "admin" || len(in[1].From[0].NamespaceSelector.MatchLabels) == 0 {
		t.Errorf("Prometheus cannot read the metrics, or others can: %+v", in)
	}
	if e := c.Env[0]; e.Name != "POD_IP" || e.ValueFrom.FieldRef.FieldPath != "status.podIP" {
		t.Errorf("the address of the pod is not in its environment: %+v", c.Env)
	}
	mounted := func(path string) bool {
		return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == path && !m.ReadOnly })
	}
	if e := c.Env[1]; e.Name != "HOME" || !mounted(e.Value) || !mounted("/var/lib/junction") {
		t.Errorf("npx and uvx cannot write to %s = %s, or the state cannot be written: %+v", e.Name, e.Value, c.VolumeMounts)
	}
	if len(d.Spec.Template.Spec.TopologySpreadConstraints) != 2 {
		t.Errorf("the pods are spread over %+v", d.Spec.Template.Spec.TopologySpreadConstraints)
	}
	config := all["ConfigMap"].(*corev1.ConfigMap).Data["config.yaml"]
	for _, want := range []string{"listen: 0.0.0.0:8420", "admin: 0.0.0.0:8421", "/etc/junction/secret/SESSION_KEY",
		"advertise: ${POD_IP}:8422", "listen: 0.0.0.0:8422"} {
		if !strings.Contains(config, want) {
			t.Errorf("the configuration lacks %s:\n%s", want, config)
		}
	}
}

// TestOperateRecipeOfKubernetesWithValues: values replace what the chart has. Only a change that needs new
// pods changes their template.
func TestOperateRecipeOfKubernetesWithValues(t *testing.T) {
	deployed := func(values map[string]any) (corev1.PodTemplateSpec, string) {
		all := objects(t, render(t, values, "junction"))
		return all["Deployment"].(*appsv1.Deployment).Spec.Template, all["ConfigMap"].(*corev1.ConfigMap).Data["config.yaml"]
	}
	first, _ := deployed(nil)
	pod, config := deployed(map[string]any{"image": "example.com/j:1", "config": map[string]any{"upstreams": map[string]any{
		"more": map[string]any{"url": "https://more.example.com/mcp"}}}})
	if image := pod.Spec.Containers[0].Image; image != "example.com/j:1" {
		t.Errorf("the image is %s", image)
	}
	if !strings.Contains(config, "https://more.example.com/mcp") {
		t.Errorf("the configuration lacks the upstream:\n%s", config)
	}
	if !maps.Equal(first.Annotations, pod.Annotations) {
		t.Errorf("another upstream replaces the pods: %v", pod.Annotations)
	}
	for _, values := range []map[string]any{{"secretVersion": "2"}, {"config": map[string]any{"drain_delay": "20s"}},
		{"config": map[string]any{"auth": map[string]any{"oauth": map[string]any{"access_ttl": "5m"}}}}} {
		if pod, _ := deployed(values); maps.Equal(first.Annotations, pod.Annotations) {
			t.Errorf("%v does not replace the pods", values)
		}
	}
	pod, _ = deployed(map[string]any{"moreSecrets": []any{"tokens"}, "database": map[string]any{"secret": "pg", "key": "uri"}})
	c := pod.Spec.Containers[0]
	if e := c.Env[2]; len(c.EnvFrom) != 2 || c.EnvFrom[1].SecretRef.Name != "tokens" || e.Name != "DATABASE_URL" ||
		e.ValueFrom.SecretKeyRef.Name != "pg" || e.ValueFrom.SecretKeyRef.Key != "uri" {
		t.Errorf("the existing secrets are not used: %+v, %+v", c.EnvFrom, c.Env)
	}
}

// TestOperateRecipeOfKubernetesMigrates: the new version prepares the database before an upgrade, with its
// own configuration. No selector of the deployment includes its pod.
func TestOperateRecipeOfKubernetesMigrates(t *testing.T) {
	all := objects(t, render(t, nil, "migrate"))
	job, config := all["Job"].(*batchv1.Job), all["ConfigMap"].(*corev1.ConfigMap)
	c := job.Spec.Template.Spec.Containers[0]
	if strings.Join(c.Args[:2], " ") != "storage migrate" || job.Annotations["helm.sh/hook"] != "pre-upgrade" ||
		config.Annotations["helm.sh/hook"] != "pre-upgrade" || config.Annotations["helm.sh/hook-weight"] != "-1" {
		t.Errorf("the job runs %q with %v, after the configuration with %v", c.Args, job.Annotations, config.Annotations)
	}
	if job.Spec.Template.Spec.Volumes[0].ConfigMap.Name != config.Name || !strings.Contains(config.Data["config.yaml"], "${DATABASE_URL}") {
		t.Errorf("the job has the configuration %+v", job.Spec.Template.Spec.Volumes)
	}
	if name := job.Spec.Template.Labels["app.kubernetes.io/name"]; name == "junction" {
		t.Error("the service sends requests to the pod of the job")
	}
	if text := render(t, map[string]any{"migrate": false}, "migrate"); strings.TrimSpace(text) != "" {
		t.Errorf("without migrate, the chart has\n%s", text)
	}
}

// TestOperateRecipeOfKubernetesOptions: what a cluster may lack is rendered on request.
func TestOperateRecipeOfKubernetesOptions(t *testing.T) {
	if text := render(t, nil, "optional"); strings.TrimSpace(text) != "" {
		t.Errorf("without values, the chart has\n%s", text)
	}
	values := map[string]any{"autoscaling": map[string]any{"enabled": true}, "ingress": map[string]any{"enabled": true},
		"monitoring": map[string]any{"serviceMonitor": true, "labels": map[string]any{"release": "prometheus"}}}
	all := objects(t, render(t, values, "optional"))
	scaler := all["HorizontalPodAutoscaler"].(*autoscalingv2.HorizontalPodAutoscaler)
	if down := scaler.Spec.Behavior.ScaleDown; *down.StabilizationWindowSeconds < 300 || down.Policies[0].Value != 1 {
		t.Errorf("pods are removed fast: %+v", down)
	}
	if d := objects(t, render(t, values, "junction"))["Deployment"].(*appsv1.Deployment); d.Spec.Replicas != nil {
		t.Errorf("an upgrade sets the number of pods to %d", *d.Spec.Replicas)
	}
	service, monitor := all["Service"].(*corev1.Service), all["ServiceMonitor"].(*monitoringv1.ServiceMonitor)
	for k, v := range monitor.Spec.Selector.MatchLabels {
		if service.Labels[k] != v {
			t.Errorf("Prometheus looks for %s=%s, and the service has %v", k, v, service.Labels)
		}
	}
	// the job and the labels that alerts.yaml expects
	labels := monitor.Spec.Endpoints[0].RelabelConfigs
	if service.Labels[monitor.Spec.JobLabel] != "junction" || len(labels) != 1 || labels[0].TargetLabel != "deployment" ||
		labels[0].Replacement == nil || *labels[0].Replacement != scaler.Spec.ScaleTargetRef.Name {
		t.Errorf("the alerts do not find the pods: job label %q of %v, %+v", monitor.Spec.JobLabel, service.Labels, labels)
	}
	if monitor.Spec.Endpoints[0].Port != service.Spec.Ports[0].Name || monitor.Labels["release"] != "prometheus" ||
		service.Spec.Selector["app.kubernetes.io/component"] != "" || service.Spec.Selector["app.kubernetes.io/name"] != "junction" {
		t.Errorf("Prometheus does not find the pods: %+v, %+v", monitor, service.Spec)
	}
	if r := all["Ingress"].(*networkingv1.Ingress).Spec; r.Rules[0].Host != "mcp.example.com" || r.TLS[0].Hosts[0] != "mcp.example.com" ||
		r.Rules[0].HTTP.Paths[0].Backend.Service.Port.Name != "http" {
		t.Errorf("the ingress is %+v", r)
	}
}

// TestOperateRecipeOfCompose loads the file as Docker Compose does.
func TestOperateRecipeOfCompose(t *testing.T) {
	project, err := loader.LoadWithContext(context.Background(), types.ConfigDetails{
		WorkingDir:  recipes,
		ConfigFiles: []types.ConfigFile{{Filename: filepath.Join(recipes, "compose.yaml")}},
		Environment: map[string]string{"POSTGRES_PASSWORD": "a", "IDP_SECRET": "b", "JUNCTION_MASTER_KEYS": "c"},
	}, func(o *loader.Options) { o.SetProjectName("junction", true) })
	if err != nil {
		t.Fatal(err)
	}
	for name, ports := range map[string]int{"junction": 0, "caddy": 2, "postgres": 0} {
		s, ok := project.Services[name]
		if !ok || len(s.Ports) != ports {
			t.Errorf("the service %s publishes %d ports (%t), want %d", name, len(s.Ports), ok, ports)
		}
	}
	writable := func(target string) bool {
		return slices.ContainsFunc(project.Services["junction"].Volumes, func(v types.ServiceVolumeConfig) bool {
			return v.Target == target && !v.ReadOnly
		})
	}
	if !writable("/home/node") || !writable("/var/lib/junction") {
		t.Errorf("npx cannot write, or the state is lost: %+v", project.Services["junction"].Volumes)
	}
	for _, v := range project.Services["junction"].Volumes {
		if dir, err := filepath.Abs(recipes); err != nil || v.Source == dir {
			t.Errorf("the container sees .env, beside compose.yaml, in %s", v.Target)
		}
	}
	if to := project.Services["caddy"].Environment["JUNCTION"]; to == nil || *to != "junction:8420" {
		t.Errorf("Caddy leads to %v", to)
	}
}
