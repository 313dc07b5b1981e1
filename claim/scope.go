package claim

import "slices"

// Scope is the work that needs a service. What is empty does not narrow.
type Scope struct {
	Steps          []string `json:"steps"`                     // see [StepOf]
	StorageOptions []string `json:"storage_options,omitempty"` // of the item
	Institutions   []string `json:"institutions,omitempty"`    // identifiers
}

// Within narrows a filter to what is in a scope as well, and tells whether anything
// is left.
func (f Filter) Within(s Scope) (Filter, bool) {
	f.Stages = slices.DeleteFunc(slices.Clone(f.Stages), func(w Want) bool { return !slices.Contains(s.Steps, StepOf(f.action(), w.Stage)) })
	var some, more bool
	f.StorageOptions, some = both(f.StorageOptions, s.StorageOptions)
	f.Institutions, more = both(f.Institutions, s.Institutions)
	return f, some && more && len(f.Stages) > 0
}

// both is what two lists have in common; an empty list has everything.
func both(a, b []string) (common []string, some bool) {
	switch {
	case len(a) == 0:
		return b, true
	case len(b) == 0:
		return a, true
	}
	common = slices.DeleteFunc(slices.Clone(a), func(s string) bool { return !slices.Contains(b, s) })
	return common, len(common) > 0
}

// walked is the filter as statements take it: stages that are left alone whole
// are not walked, and of the rest of Without only what matters is kept.
func (f Filter) walked() Filter {
	if len(f.Without) == 0 {
		return f
	}
	touched := func(s Scope) func(w Want) bool {
		return func(w Want) bool { return slices.Contains(s.Steps, StepOf(f.action(), w.Stage)) }
	}
	f.Stages = slices.Clone(f.Stages)
	for _, s := range f.Without {
		if len(s.StorageOptions) == 0 && len(s.Institutions) == 0 {
			f.Stages = slices.DeleteFunc(f.Stages, touched(s))
		}
	}
	f.Without = slices.DeleteFunc(slices.Clone(f.Without), func(s Scope) bool { return !slices.ContainsFunc(f.Stages, touched(s)) })
	return f
}
