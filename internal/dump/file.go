// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package dump

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	nodeopv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/options"
)

// The type of the file.
const (
	fileVersion = "cli." + v1alpha1.Group + "/v1"
	fileKind    = "Dump"
)

// file is the format of a dump.
type file struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Taken      time.Time         `json:"taken"`
	Plugin     string            `json:"plugin,omitempty"`
	Operator   Operator          `json:"operator"`
	Items      []json.RawMessage `json:"items"`
}

// dumpedKinds are the kinds in a file, in this order. Deployments are left out: the settings of the operator replace them.
var dumpedKinds = []schema.GroupVersionKind{
	v1alpha1.GroupVersion.WithKind("Skyhook"), v1alpha1.GroupVersion.WithKind("DeploymentPolicy"),
	nodeopv1.GroupVersion.WithKind("NodeOp"), nodeopv1.GroupVersion.WithKind("NodeOpUpgrade"),
	corev1.SchemeGroupVersion.WithKind("Node"), corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithKind("ConfigMap"),
	{Group: "batch", Version: "v1", Kind: "Job"}, {Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
}

// Write writes a redacted Cluster.
func (c *Cluster) Write(w io.Writer) error {
	out := file{
		APIVersion: fileVersion, Kind: fileKind, Taken: c.Taken.UTC().Truncate(time.Second), Plugin: c.Plugin,
		Operator: c.Operator,
	}
	var kinds []schema.GroupVersionKind
	var objects []client.Object
	for _, gvk := range dumpedKinds {
		for _, o := range c.Objects(gvk) {
			kinds, objects = append(kinds, gvk), append(objects, o)
		}
	}
	out.Items = make([]json.RawMessage, len(objects))
	err := forEach(len(objects), func(i int) (err error) {
		if out.Items[i], err = marshalObject(kinds[i], objects[i]); err != nil {
			return fmt.Errorf("writing %s %s: %w", kinds[i].Kind, objects[i].GetName(), err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return out.writeTo(w)
}

// marshalObject formats one object for a file.
func marshalObject(gvk schema.GroupVersionKind, o client.Object) ([]byte, error) {
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	raw["apiVersion"], raw["kind"] = gvk.GroupVersion().String(), gvk.Kind
	return json.Marshal(dropEmpty(raw))
}

// maxYAMLObjects is the number of objects up to which a file is YAML with a line for each field. Larger files have one line
// of JSON for each object, because large YAML takes many seconds to write and to read.
const maxYAMLObjects = 500

func (f file) writeTo(w io.Writer) error {
	items := f.Items
	if len(items) > maxYAMLObjects {
		f.Items = nil
	}
	text, err := yaml.Marshal(f)
	if err != nil {
		return fmt.Errorf("writing the dump: %w", err)
	}
	if len(items) > maxYAMLObjects {
		text = append(bytes.Replace(text, []byte("items: null\n"), nil, 1), "items:\n"...)
		for _, item := range items {
			text = append(append(append(text, "- "...), item...), '\n')
		}
	}
	_, err = w.Write(text)
	return err
}

// parseFile parses a file. Lines of JSON are not passed to the YAML parser.
func parseFile(text []byte) (file, error) {
	f := file{Operator: Operator{Options: *options.Defaults()}} // a dump of an earlier plugin does not have all of them
	var lines []json.RawMessage
	if head, rest, cut := bytes.Cut(text, []byte("\nitems:\n- {")); cut {
		text = append(head, '\n')
		for _, line := range bytes.Split(append([]byte("- {"), rest...), []byte("\n")) {
			item, is := bytes.CutPrefix(line, []byte("- "))
			if len(line) > 0 && (!is || !json.Valid(item)) {
				return f, fmt.Errorf("a line is no object: %.40s", line)
			}
			if is {
				lines = append(lines, item)
			}
		}
	}
	err := yaml.Unmarshal(text, &f)
	f.Items = append(f.Items, lines...)
	return f, err
}

// dropEmpty removes empty fields, of which typed objects have many, and redacts URLs. The files of configMap stay as they are: nodes record
// their digest.
func dropEmpty(m map[string]any) map[string]any {
	for key, value := range m {
		switch v := value.(type) {
		case nil:
			delete(m, key)
		case map[string]any:
			if key == "data" || key == "configMap" || key == "labels" || key == "annotations" {
				continue
			}
			if dropEmpty(v); len(v) == 0 && key != "emptyDir" {
				delete(m, key)
			}
		case string:
			m[key] = RedactURLs(v)
		case []any:
			for i, item := range v {
				switch item := item.(type) {
				case map[string]any:
					dropEmpty(item)
				case string:
					v[i] = RedactURLs(item)
				}
			}
		}
	}
	return m
}

// Read reads a file that Write wrote.
func Read(r io.Reader) (*Cluster, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	in, err := parseFile(text)
	if err != nil {
		return nil, fmt.Errorf("it is not a dump: %w", err)
	}
	if in.APIVersion != fileVersion || in.Kind != fileKind {
		return nil, errors.New("it is not a dump: kubectl skyhook dump makes one")
	}
	p, err := New(nil, in.Taken)
	if err != nil {
		return nil, err
	}
	p.Plugin, p.Operator = in.Plugin, in.Operator
	decoder := serializer.NewCodecFactory(p.scheme).UniversalDeserializer()
	for i, raw := range in.Items {
		o, _, err := decoder.Decode(raw, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("reading item %d: %w", i+1, err)
		}
		object, ok := o.(client.Object)
		if !ok {
			return nil, fmt.Errorf("item %d is a list", i+1)
		}
		if err := p.Put(object); err != nil {
			return nil, err
		}
	}
	return p, nil
}
