// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package dump

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

const secretValue = "hunter2"

// fill makes one of everything that an object can have, with a secret in each environment variable. It returns the paths of those.
func fill(t *testing.T, part reflect.Value, path string) (found []string) {
	t.Helper()
	if strings.Count(path, ".") > 12 {
		return nil // a type that has itself in it
	}
	switch part.Kind() {
	case reflect.Pointer:
		part.Set(reflect.New(part.Type().Elem()))
		return fill(t, part.Elem(), path)
	case reflect.Slice:
		if part.Type().Elem().Kind() == reflect.Uint8 {
			return nil
		}
		part.Set(reflect.MakeSlice(part.Type(), 1, 1))
		return fill(t, part.Index(0), path)
	case reflect.Map:
		key, value := reflect.New(part.Type().Key()).Elem(), reflect.New(part.Type().Elem()).Elem()
		key.SetString("a")
		found = fill(t, value, path)
		part.Set(reflect.MakeMap(part.Type()))
		part.SetMapIndex(key, value)
		return found
	case reflect.Struct:
	default:
		return nil
	}
	if value := part.FieldByName("Value"); part.Type().Name() == "EnvVar" && value.IsValid() {
		value.SetString(secretValue)
		return []string{path}
	}
	for i := range part.NumField() {
		field := part.Type().Field(i)
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); strings.HasPrefix(strings.ToLower(name), "env") && name != "envFrom" &&
			(field.Type.Kind() != reflect.Slice || field.Type.Elem().Name() != "EnvVar") {
			t.Errorf("%s.%s has environment variables of the type %s, which are not redacted", path, field.Name, field.Type)
		}
		if field.IsExported() && field.Name != "ObjectMeta" && field.Name != "TypeMeta" {
			found = append(found, fill(t, part.Field(i), path+"."+field.Name)...)
		}
	}
	return found
}

// TestEverythingIsRedacted: no kind in a dump has the value of an environment variable, wherever it may have one.
func TestEverythingIsRedacted(t *testing.T) {
	c, err := New(nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var secrets []string
	for _, gvk := range dumpedKinds {
		made, err := c.scheme.New(gvk)
		if err != nil {
			t.Fatal(err)
		}
		o, ok := made.(client.Object)
		if !ok {
			t.Fatalf("%T is no object", made)
		}
		found := fill(t, reflect.ValueOf(made).Elem(), gvk.Kind)
		redacted := 0
		redactEnv(reflect.ValueOf(made), func(value string) string {
			redacted++
			return value
		})
		if redacted != len(found) {
			t.Errorf("of %v only %d are redacted", found, redacted)
		}
		secrets = append(secrets, found...)
		o.SetName("a")
		if err := c.Put(o); err != nil {
			t.Fatal(err)
		}
	}
	if len(secrets) < 5 { // a package of a Skyhook, a NodeOp, and the containers of pods and Jobs
		t.Fatalf("only %v have environment variables", secrets)
	}
	redacted, err := c.Redacted()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := redacted.Write(&out); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), secretValue) || !strings.Contains(out.String(), "redacted-1") {
		t.Errorf("the dump has a secret in it, or nothing that is redacted:\n%s", out.String())
	}
}

// TestURLsAreRedacted: a dump has no user and password of a URL, wherever one is: in a policy, a message, an annotation or a setting of the operator.
func TestURLsAreRedacted(t *testing.T) {
	const credentials = "person:pass'w@o!$&()*+,;=%2Frd@" // all that a URL may have there
	url := "https://" + credentials + "prometheus.example.com/tenant"
	c, err := New(nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	p := &v1alpha1.DeploymentPolicy{}
	p.Name, p.Annotations = "a", map[string]string{v1alpha1.Group + "/note": "see " + url}
	p.Spec.Health = &v1alpha1.HealthGates{Prometheus: []v1alpha1.PrometheusGate{{Name: "errors", URL: url}}}
	s := &v1alpha1.Skyhook{}
	s.Name = "b"
	s.Status.Conditions = []metav1.Condition{{Type: "Accepted", Message: "asking " + url + ": refused, and a@b.example https://c.example/d@e stay"}}
	c.Operator.PrometheusEndpoints = []string{url}
	for _, many := range []int{0, maxYAMLObjects} { // which are written in another way
		for i := range many {
			n := &corev1.Node{}
			n.Name = fmt.Sprint("n", i)
			if err := c.Put(n); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(c.Put(p), c.Put(s)); err != nil {
			t.Fatal(err)
		}
		redacted, err := c.Redacted()
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := redacted.Write(&out); err != nil {
			t.Fatal(err)
		}
		if text := out.String(); strings.Contains(text, "person") || strings.Contains(text, "pass") || strings.Contains(text, "rd@") ||
			strings.Count(text, "https://redacted@prometheus.example.com/tenant") != 4 || !strings.Contains(text, "a@b.example https://c.example/d@e stay") {
			t.Errorf("%.3000s", text)
		}
		if _, err := Read(&out); err != nil {
			t.Errorf("what is redacted cannot be read: %v", err)
		}
	}
}
