// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// TestSettingsByProfile shows that the profile of a Skyhook decides only where the operator has no setting, and never about pulls.
func TestSettingsByProfile(t *testing.T) {
	type answers struct{ compact, pins, prepulls bool }
	explicit := func(yes bool, layout PodLayout) Config {
		return Config{PodLayout: layout, PinImages: new(yes), Prepull: new(yes)}
	}
	for _, c := range []struct {
		profile v1alpha1.Profile
		config  Config
		want    answers
	}{
		{"", Config{}, answers{}},
		{"", Config{Profile: v1alpha1.ProfileRecommended}, answers{}}, // it existed before
		{v1alpha1.ProfileCompatible, Config{}, answers{}},
		{v1alpha1.ProfileRecommended, Config{}, answers{compact: true, pins: true}},
		{v1alpha1.ProfileRecommended, explicit(false, LayoutCompatible), answers{}},
		{v1alpha1.ProfileCompatible, explicit(true, LayoutCompact), answers{true, true, true}},
	} {
		f := &Facts{Skyhook: &v1alpha1.Skyhook{Spec: v1alpha1.SkyhookSpec{Profile: c.profile}}, Config: c.config}
		if got := (answers{f.WantsCompact(), f.PinsImages(), f.Prepulls()}); got != c.want {
			t.Errorf("profile %q, settings %+v: %+v, want %+v", c.profile, c.config, got, c.want)
		}
	}
}
