// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/skyhook-k8s/skyhook/internal/pack"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// rebootProof is TrustAgentReboots as its option spells it: bootID or agent.
type rebootProof bool

// IsBoolFlag lets a flag stand without a value.
func (o *Option) IsBoolFlag() bool {
	_, isBool := o.target.(*bool)
	return isBool
}

// Set parses a value and stores it.
func (o *Option) Set(text string) error {
	o.given = true
	switch target := o.target.(type) {
	case *string:
		*target = text
	case *[]string:
		*target = strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
	case *bool:
		value, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		*target = value
	case **bool:
		*target = nil
		if text != "" {
			value, err := strconv.ParseBool(text)
			if err != nil {
				return fmt.Errorf("%q is neither true nor false", text)
			}
			*target = &value
		}
	case *int:
		value, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", text)
		}
		*target = value
	case *metav1.Duration:
		value, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is not a duration such as 90s or 1h", text)
		}
		target.Duration = value
	case *rebootProof:
		if text != "bootID" && text != "agent" {
			return fmt.Errorf("%q is neither bootID nor agent", text)
		}
		*target = text == "agent"
	case *corev1.Taint:
		value, err := ParseTaint(text)
		if err != nil {
			return err
		}
		*target = value
	}
	return nil
}

// String is the current value, in the form that Set parses.
func (o *Option) String() string {
	switch target := o.target.(type) {
	case *string:
		return *target
	case *[]string:
		return strings.Join(*target, ",")
	case *bool:
		return strconv.FormatBool(*target)
	case **bool:
		if *target != nil {
			return strconv.FormatBool(**target)
		}
	case *int:
		return strconv.Itoa(*target)
	case *metav1.Duration:
		return target.Duration.String()
	case *rebootProof:
		if *target {
			return "agent"
		}
		return "bootID"
	case *corev1.Taint:
		return target.ToString()
	}
	return ""
}

// ParseTaint reads a taint as kubectl taint writes it: key=value:Effect or key:Effect.
func ParseTaint(text string) (corev1.Taint, error) {
	if strings.HasSuffix(text, "-") {
		return corev1.Taint{}, fmt.Errorf("%q removes a taint: leave the - at its end out", text)
	}
	words, effect, hasEffect := strings.Cut(text, ":")
	key, value, _ := strings.Cut(words, "=")
	effects := []string{string(corev1.TaintEffectNoSchedule), string(corev1.TaintEffectPreferNoSchedule), string(corev1.TaintEffectNoExecute)}
	switch {
	case !hasEffect || !slices.Contains(effects, effect):
		return corev1.Taint{}, fmt.Errorf("%q is not a taint: write key=value:Effect with the effect NoSchedule, PreferNoSchedule or NoExecute", text)
	case len(validation.IsQualifiedName(key)) > 0:
		return corev1.Taint{}, fmt.Errorf("%q is not the key of a taint", key)
	case len(validation.IsValidLabelValue(value)) > 0:
		return corev1.Taint{}, fmt.Errorf("%q is not the value of a taint", value)
	}
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}, nil
}

func checkNamespace(text string) error {
	if len(validation.IsDNS1123Label(text)) > 0 {
		return fmt.Errorf("%q is not the name of a namespace", text)
	}
	return nil
}

func checkNamespaces(text string) error {
	if text == "" {
		return nil
	}
	var errs []error
	for name := range strings.SplitSeq(text, ",") {
		errs = append(errs, checkNamespace(name))
	}
	return errors.Join(errs...)
}

func checkSecrets(text string) error {
	var errs []error
	for _, secret := range plan.PullSecrets(text) {
		errs = append(errs, checkNameOf("a Secret")(secret.Name))
	}
	return errors.Join(errs...)
}

func checkEndpoints(text string) error {
	if text == "" {
		return nil
	}
	var errs []error
	for endpoint := range strings.SplitSeq(text, ",") {
		u, err := url.Parse(endpoint)
		isURL := err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https")
		if endpoint != "*" && !isURL {
			errs = append(errs, fmt.Errorf("%q is not the beginning of a URL such as https://prometheus.example.com", endpoint))
		}
	}
	return errors.Join(errs...)
}

func checkNameOf(kind string) func(string) error {
	return func(text string) error {
		if text != "" && len(validation.IsDNS1123Subdomain(text)) > 0 {
			return fmt.Errorf("%q is not the name of %s", text, kind)
		}
		return nil
	}
}

func checkImage(text string) error {
	hasTag := strings.Contains(text[strings.LastIndexByte(text, '/')+1:], ":")
	if !hasTag || strings.ContainsAny(text, " \t\n") {
		return fmt.Errorf("%q is not an image with a tag or digest, such as registry.example/team/image:v1.2.3", text)
	}
	return nil
}

func checkPath(text string) error {
	if !path.IsAbs(text) || path.Clean(text) == "/" {
		return fmt.Errorf("%q is not an absolute path below /", text)
	}
	return nil
}

func checkOptionalPath(text string) error {
	if text == "" {
		return nil
	}
	return checkPath(text)
}

// checkOptionalObject rejects what is no JSON object; the API server checks its fields.
func checkOptionalObject(text string) error {
	var object map[string]any
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		return fmt.Errorf("it must be a JSON object such as {\"default\":{…}}: %w", err)
	}
	return nil
}

func checkPositive(text string) error {
	if d, err := time.ParseDuration(text); err == nil && d <= 0 {
		return errors.New("it must be longer than 0")
	}
	return nil
}

func checkMemory(text string) error {
	if amount, err := resource.ParseQuantity(text); err != nil || amount.Value() < 32<<20 {
		return fmt.Errorf("%q is not an amount of memory of at least 32Mi, such as 256Mi", text)
	}
	return nil
}

func checkParallel(text string) error {
	if n, err := strconv.Atoi(text); err == nil && (n < 1 || n > 500) {
		return fmt.Errorf("%d is not between 1 and 500", n)
	}
	return nil
}

func checkAddress(text string) error {
	if _, _, err := net.SplitHostPort(text); err != nil && text != "0" {
		return fmt.Errorf("%q is not an address such as :8080 or 127.0.0.1:8080, nor 0 for none", text)
	}
	return nil
}

func checkOptionalAddress(text string) error {
	if text == "" {
		return nil
	}
	return checkAddress(text)
}

// checkOneOf rejects what is none of some words.
func checkOneOf[T ~string](words ...T) func(string) error {
	return func(text string) error {
		if slices.Contains(words, T(text)) {
			return nil
		}
		return fmt.Errorf("%q is none of %q", text, words)
	}
}

func checkKubernetesVersion(text string) error {
	if v, err := pack.ParseVersion(text); err != nil || v.Major() != 1 || v.Minor() < 31 {
		return fmt.Errorf("%q is not a version of Kubernetes from 1.31 on, such as %s", text, plan.DefaultImageVolumesFrom)
	}
	return nil
}
