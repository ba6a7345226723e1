// Package kustomize_test renders the kustomize components of this folder with
// the program that operators render them with.
package kustomize_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"
)

const (
	ourImage = "ghcr.io/networkservicemesh/cmd-nsmgr-proxy"

	// shipped holds the overlays that operators run, where a copy of them lies
	// beside the checkout.
	shipped = "../../../shared/fixtures/deployments-k8s/examples/interdomain/two_cluster_configuration/basic"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func TestSwapImage(t *testing.T) {
	needSwitch(t)
	requireOnlySwap(t, "testdata/base")
}

func TestSwapImageInShippedOverlays(t *testing.T) {
	needSwitch(t)
	if _, err := os.Stat(shipped); err != nil {
		t.Skipf("no copy of the shipped overlays beside the checkout: %v", err)
	}
	for _, cluster := range []string{"cluster1", "cluster2"} {
		t.Run(cluster, func(t *testing.T) {
			requireOnlySwap(t, filepath.Join(shipped, cluster))
		})
	}
}

// A component that matches nothing must not look like success.
func TestSwapImageWithoutProxy(t *testing.T) {
	needSwitch(t)
	_, err := render(t, overlay(t, "testdata/base/neighbour.yaml", true))
	require.ErrorContains(t, err, "no matches for Id Deployment.v1.apps/nsmgr-proxy")
}

// requireOnlySwap fails unless the component changes the image and the
// strategy of the proxy's Deployment and nothing else in the render of base.
func requireOnlySwap(t *testing.T, base string) {
	t.Helper()
	want, err := render(t, overlay(t, base, false))
	require.NoError(t, err)
	got, err := render(t, overlay(t, base, true))
	require.NoError(t, err)
	require.NotEqual(t, want, got)

	spec := proxySpec(t, want)
	require.NotContains(t, spec, "strategy")
	spec["strategy"] = map[string]any{
		"type":          "RollingUpdate",
		"rollingUpdate": map[string]any{"maxSurge": 0, "maxUnavailable": 1},
	}
	proxyContainer(t, spec)["image"] = ourImage + ":v1.2.3"
	require.Equal(t, want, got)
}

func proxySpec(t *testing.T, docs []map[string]any) map[string]any {
	t.Helper()
	i := slices.IndexFunc(docs, func(doc map[string]any) bool {
		return doc["kind"] == "Deployment" && doc["metadata"].(map[string]any)["name"] == "nsmgr-proxy"
	})
	require.GreaterOrEqual(t, i, 0, "no Deployment nsmgr-proxy in the render")
	return docs[i]["spec"].(map[string]any)
}

func proxyContainer(t *testing.T, spec map[string]any) map[string]any {
	t.Helper()
	template := spec["template"].(map[string]any)["spec"].(map[string]any)
	containers := template["containers"].([]any)
	i := slices.IndexFunc(containers, func(c any) bool {
		return c.(map[string]any)["name"] == "nsmgr-proxy"
	})
	require.GreaterOrEqual(t, i, 0, "no container nsmgr-proxy")
	require.Len(t, containers, 2, "the sidecar is what an image swap could hit by mistake")
	return containers[i].(map[string]any)
}

// overlay writes an overlay of base, as an operator would, and returns its
// folder. Files are copied beside it, since kustomize loads none from outside.
func overlay(t *testing.T, base string, withComponent bool) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)

	resource := filepath.Base(base)
	if filepath.Ext(base) == ".yaml" {
		data, err := os.ReadFile(base)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, resource), data, 0o600))
	} else {
		resource = relative(t, dir, base)
	}
	doc := map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1",
		"kind":       "Kustomization",
		"resources":  []string{resource},
		"images":     []map[string]string{{"name": ourImage, "newTag": "v1.2.3"}},
	}
	if withComponent {
		doc["components"] = []string{relative(t, dir, "swap-image")}
	}
	data, err := yaml.Marshal(doc)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), data, 0o600))
	return dir
}

func relative(t *testing.T, from, to string) string {
	t.Helper()
	abs, err := filepath.Abs(to)
	require.NoError(t, err)
	abs, err = filepath.EvalSymlinks(abs)
	require.NoError(t, err)
	rel, err := filepath.Rel(from, abs)
	require.NoError(t, err)
	return rel
}

// render returns the documents that kustomize makes of dir, in its order.
func render(t *testing.T, dir string) ([]map[string]any, error) {
	t.Helper()
	command := []string{"kubectl", "kustomize", dir}
	if _, err := exec.LookPath("kubectl"); err != nil {
		command = []string{"kustomize", "build", dir}
	}
	var stderr strings.Builder
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, errors.New(stderr.String() + err.Error())
	}

	var docs []map[string]any
	for decoder := yaml.NewDecoder(bytes.NewReader(out)); ; {
		var doc map[string]any
		err := decoder.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		require.NoError(t, err)
		docs = append(docs, doc)
	}
}

// needSwitch skips what needs kubectl or kustomize in PATH unless the
// environment says that they are there.
func needSwitch(t *testing.T) {
	t.Helper()
	const name = "kustomize"
	if !slices.Contains(strings.Split(os.Getenv("NSMGR_PROXY_TEST"), ","), name) {
		t.Skipf("needs kubectl or kustomize in PATH: set NSMGR_PROXY_TEST=%s", name)
	}
}
