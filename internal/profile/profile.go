// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package profile has the defaults of the profile Recommended. It is pure: a spec comes in, a copy with its absent fields filled in goes
// out, which is compiled, with the names of these fields. What a user wrote is never changed. The profile Compatible fills in nothing.
//
//	chosen := profile.Choose(spec.Profile, status.Profile, hasStatus, operator)
//	filled, names := profile.FillSkyhook(spec, policy, hasPins)
//	names.Defaults(…) // what reasons say of the profile
package profile
