package record

import "time"

// Token is what lets a program use the HTTP APIs. Its secret is not stored.
type Token struct {
	ID          int64      `json:"id"`
	Name        string     `json:"name"`
	Institution string     `json:"institution_identifier"` // "": of all
	Rights      []string   `json:"rights"`
	Stages      []Stage    `json:"stages"` // that may be leased; none: all that are worked on over HTTP
	CreatedAt   time.Time  `json:"created_at"`
	CreatedBy   string     `json:"created_by"` // user of the database
	ExpiresAt   *time.Time `json:"expires_at"` // nil: never
	UsedAt      *time.Time `json:"used_at"`    // to the minute; nil: never
	UserID      int64      `json:"user_id"`    // whose personal token it is; 0: of a service
	Permissions []string   `json:"permissions"`
}

// User is a person who asks for things. Institution is an identifier; an admin has
// none.
type User struct {
	ID            int64      `json:"id"`
	Email         string     `json:"email"`
	Name          string     `json:"name"`
	Institution   string     `json:"institution_identifier"`
	InstitutionID int64      `json:"institution_id"` // 0: none
	Role          string     `json:"role"`
	DeactivatedAt *time.Time `json:"deactivated_at"` // nil: active
	CreatedAt     time.Time  `json:"created_at"`
}

// ListedAction is what a person did, or was refused.
type ListedAction struct {
	ID            int64          `json:"id"`
	At            time.Time      `json:"at"`
	Actor         string         `json:"actor"`
	OnBehalfOf    string         `json:"on_behalf_of"` // person for whom a command acted on paper; "": none
	UserID        *int64         `json:"user_id"`
	TokenID       *int64         `json:"token_id"`
	IP            string         `json:"ip" db:"ip"` // "": unknown, or of a person of another institution
	Operation     string         `json:"operation"`
	SubjectType   string         `json:"subject_type"`
	SubjectID     string         `json:"subject_id"`
	InstitutionID *int64         `json:"institution_id"`
	Institution   string         `json:"institution_identifier"`
	Outcome       string         `json:"outcome"`
	Detail        map[string]any `json:"detail"`
}

// ListedAlert is a message for the people of an institution, or for the archive's own staff.
type ListedAlert struct {
	ID            int64      `json:"id"`
	InstitutionID *int64     `json:"institution_id"` // nil: it is for the staff, or for one person
	Institution   string     `json:"institution_identifier"`
	Type          string     `json:"type"`
	Subject       string     `json:"subject"`
	Content       string     `json:"content"`
	DeletionID    *int64     `json:"deletion_request_id" db:"deletion_id"`
	Item          *int64     `json:"work_item_id"`
	FileID        *int64     `json:"generic_file_id" db:"file_id"`
	Count         int        `json:"count"` // of what it is about, such as items that failed in the same way
	CreatedAt     time.Time  `json:"created_at"`
	ReadAt        *time.Time `json:"read_at"` // by the person who reads; nil: it is new to that person
}

// MailSettings say when a person gets a mail for each kind of alert: now, daily or never.
// What concerns the own account is always sent at once.
type MailSettings struct {
	Deletions    string `json:"deletions"`
	Restorations string `json:"restorations"`
	Fixity       string `json:"fixity"`
	Problems     string `json:"problems"`
}

// Session is a browser in which a person has signed in.
type Session struct {
	ID       int64      `json:"id"`
	UserID   int64      `json:"-"`
	Level    string     `json:"level"`
	BegunAt  time.Time  `json:"begun_at"`
	SeenAt   time.Time  `json:"seen_at"` // to the minute
	EndsAt   time.Time  `json:"ends_at"` // at the latest
	StrongAt *time.Time `json:"strong_at"`
	IP       string     `json:"ip" db:"ip"`
	Agent    string     `json:"agent"`
	Fresh    bool       `json:"fresh"` // the person has proved who they are within the last ten minutes
}

// Profile is a person as others see them.
type Profile struct {
	ID             int64      `json:"id"`
	Email          string     `json:"email"`
	Name           string     `json:"name"`
	Role           string     `json:"role"`
	InstitutionID  int64      `json:"institution_id"`         // 0: none
	Institution    string     `json:"institution_identifier"` // "": none
	DeactivatedAt  *time.Time `json:"deactivated_at"`         // nil: active
	SecondFactor   bool       `json:"second_factor"`          // it is set up
	FactorRequired bool       `json:"second_factor_required"` // for this person; role and institution may require it, too
	HasPassword    bool       `json:"has_password"`
	Issuer         string     `json:"oidc_issuer"`  // OpenID provider that the person is linked to; "": none
	SignedInAt     *time.Time `json:"signed_in_at"` // nil: never
	LockedUntil    *time.Time `json:"locked_until"` // until when attempts to sign in fail, after several that did; nil: they do not
	TimeZone       string     `json:"time_zone"`
	CreatedAt      time.Time  `json:"created_at"`
	UpdatedAt      time.Time  `json:"updated_at"`
	Version        int64      `json:"version"`
}

// ServiceToken is a token of a service without its secret.
type ServiceToken struct {
	TokenView

	Institution string   `json:"institution_identifier" doc:"Empty: of the whole archive"`
	Rights      []string `json:"rights"`
	Stages      []Stage  `json:"stages" doc:"That may be leased; none: all that are processed over HTTP"`
	CreatedBy   string   `json:"created_by"`
}

// NewServiceToken is a token of a service that was just made, with its secret.
type NewServiceToken struct {
	ServiceToken

	Secret string `json:"token" doc:"It cannot be shown again"`
}

// SessionRow is a session in the list of the person's own.
type SessionRow struct {
	Session

	Current bool `json:"current" doc:"It is the one that asks"`
}

// TokenView is a token without its secret.
type TokenView struct {
	ID          int64      `json:"id"`
	Name        string     `json:"name"`
	Permissions []string   `json:"permissions"`
	Idle        []string   `json:"permissions_without_effect" doc:"Of these, those that no such token can use"`
	CreatedAt   time.Time  `json:"created_at"`
	ExpiresAt   *time.Time `json:"expires_at" doc:"null: never"`
	UsedAt      *time.Time `json:"used_at" doc:"To the minute; null: never"`
}

// NewToken is a token with its secret.
type NewToken struct {
	TokenView

	Secret string `json:"token" doc:"It cannot be shown again"`
}
