// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// maxSoak is the longest soak time of a policy.
const maxSoak = 168 * time.Hour

// Manifests do the same as one DaemonSet of kured.
type Manifests struct {
	Original string                     `json:"original"` // kind, namespace and name
	Policy   *v1alpha1.DeploymentPolicy `json:"policy,omitempty"`
	NodeOp   *nodeopv1.NodeOp           `json:"nodeOp"`
	Gaps     []Gap                      `json:"gaps"`
}

func (m *Manifests) addGap(field, format string, args ...any) {
	m.Gaps = append(m.Gaps, Gap{Object: m.Original, Field: field, Text: fmt.Sprintf(format, args...)})
}

// setPolicy gives the NodeOp a policy with a budget of so many nodes.
func (m *Manifests) setPolicy(budget int64) {
	name := m.NodeOp.Namespace + "-" + m.NodeOp.Name
	m.Policy = &v1alpha1.DeploymentPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "DeploymentPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.DeploymentPolicySpec{Default: v1alpha1.PolicyDefault{
			Budget:   v1alpha1.Budget{Count: &budget},
			Strategy: v1alpha1.Strategy{Fixed: &v1alpha1.FixedStrategy{BatchStrategy: v1alpha1.BatchStrategy{InitialBatch: &budget}}},
		}},
	}
	m.NodeOp.Spec.DeploymentPolicy = name
}

// Text is the manifests as YAML, after comments with what has no counterpart.
func (m *Manifests) Text() (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n", m.Original)
	if len(m.Gaps) > 0 {
		b.WriteString("# Without a counterpart:\n")
	}
	for _, g := range m.Gaps {
		fmt.Fprintf(&b, "# - %s: %s\n", g.Field, strings.ReplaceAll(g.Text, "\n", " "))
	}
	for i, o := range []any{m.Policy, m.NodeOp} {
		if i > 0 {
			b.WriteString("---\n")
		}
		text, err := formatManifest(o)
		if err != nil {
			return "", fmt.Errorf("%s: %w", m.Original, err)
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

func formatManifest(o any) (string, error) {
	raw, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	var fields map[string]any
	if err := json.Unmarshal(raw, &fields); err != nil {
		return "", err
	}
	delete(fields, "status")
	text, err := yaml.Marshal(fields)
	return string(text), err
}

// toSelector writes a selector into one of our API, whose types have the same wire format.
func toSelector(from metav1.LabelSelector, to any) error {
	raw, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, to)
}
