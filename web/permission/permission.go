// Package permission says what each role may do.
package permission

import (
	"slices"
	"strings"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// Permission is what an operation needs, such as "items.read". What is not granted to a
// role is denied.
type Permission string

// All permissions there are. Which records one of them reaches is the scope of the person.
const (
	ItemsRead    Permission = "items.read"    // with attempts, reasons and progress
	ItemsWorkers Permission = "items.workers" // names of hosts and processes, and what workers would claim next
	ItemsDecide  Permission = "items.decide"  // requeue, release, cancel, priority, note, review

	DepositsMake Permission = "deposits.make" // judge bags, and upload them into the receiving bucket

	PlansRead    Permission = "plans.read"
	PlansMake    Permission = "plans.make"
	PlansApply   Permission = "plans.apply"
	PlansUndo    Permission = "plans.undo"
	PlansApprove Permission = "plans.approve" // of another person

	QueueRead      Permission = "queue.read"
	QueuePause     Permission = "queue.pause"
	WorkersDrain   Permission = "workers.drain"
	StagesWrite    Permission = "stages.write"
	SchedulesRead  Permission = "schedules.read"
	SchedulesWrite Permission = "schedules.write"

	ObjectsRead   Permission = "objects.read"
	FilesRead     Permission = "files.read"
	CopiesRead    Permission = "copies.read"
	EventsRead    Permission = "events.read"
	ChecksumsRead Permission = "checksums.read"

	RestorationsRequest Permission = "restorations.request"
	RestorationsApprove Permission = "restorations.approve" // of another person, except for staff
	DeletionsRead       Permission = "deletions.read"
	DeletionsRequest    Permission = "deletions.request"
	DeletionsCancel     Permission = "deletions.cancel"
	DeletionsApprove    Permission = "deletions.approve" // of another person; of staff where an institution has one admin

	FixityRead    Permission = "fixity.read"
	FixityCheck   Permission = "fixity.check"
	FixityPolicy  Permission = "fixity.policy"
	RepairRelease Permission = "repair.release"

	AlertsRead      Permission = "alerts.read" // and mark as read
	ReportsDeposits Permission = "reports.deposits"
	ReportsCosts    Permission = "reports.costs"
	ExportsMake     Permission = "exports.make"

	InstitutionsRead     Permission = "institutions.read"
	InstitutionsSettings Permission = "institutions.settings"
	InstitutionsWrite    Permission = "institutions.write"
	UsersRead            Permission = "users.read"
	UsersWrite           Permission = "users.write" // an institutional admin: the roles of the own institution
	TokensService        Permission = "tokens.service"
	AuditRead            Permission = "audit.read"
	SettingsRead         Permission = "settings.read"
	SettingsWrite        Permission = "settings.write"
)

// The roles in the columns of the table.
const (
	u = 1 << iota // institutional_user
	a             // institutional_admin
	r             // auditor
	o             // operator
	s             // admin
)

// table has one line for each permission, and who has it.
//
//nolint:gochecknoglobals // a constant, but for Go
var table = []struct {
	permission Permission
	roles      int
}{
	{ItemsRead, u | a | r | o | s},
	{ItemsWorkers, r | o | s},
	{ItemsDecide, o | s},
	{DepositsMake, u | a | s},
	{PlansRead, o | s},
	{PlansMake, o | s},
	{PlansApply, o | s},
	{PlansUndo, o | s},
	{PlansApprove, o | s},
	{QueueRead, u | a | r | o | s},
	{QueuePause, o | s},
	{WorkersDrain, o | s},
	{StagesWrite, o | s},
	{SchedulesRead, o | s},
	{SchedulesWrite, o | s},
	{ObjectsRead, u | a | r | s},
	{FilesRead, u | a | r | s},
	{CopiesRead, u | a | r | s},
	{EventsRead, u | a | r | s},
	{ChecksumsRead, u | a | r | s},
	{RestorationsRequest, u | a | s},
	{RestorationsApprove, a | s},
	{DeletionsRead, u | a | r | s},
	{DeletionsRequest, a},
	{DeletionsCancel, a | s},
	{DeletionsApprove, a | s},
	{FixityRead, u | a | r | o | s},
	{FixityCheck, a | s},
	{FixityPolicy, s},
	{RepairRelease, s},
	{AlertsRead, u | a | r | o | s},
	{ReportsDeposits, u | a | r | s},
	{ReportsCosts, r | s},
	{ExportsMake, u | a | r | s},
	{InstitutionsRead, u | a | r | o | s},
	{InstitutionsSettings, a | s},
	{InstitutionsWrite, s},
	{UsersRead, a | r | s},
	{UsersWrite, a | s},
	{TokensService, s},
	{AuditRead, a | r | o | s},
	{SettingsRead, r | o | s},
	{SettingsWrite, s},
}

//nolint:gochecknoglobals // a constant, but for Go
var roles = map[string]int{
	registry.RoleInstitutionalUser: u, registry.RoleInstitutionalAdmin: a, registry.RoleAuditor: r, registry.RoleOperator: o, registry.RoleAdmin: s,
}

// Of returns what a role may do, in the order of the table. An unknown role may nothing.
// What an auditor of one institution may is the same list with a narrower scope, but for
// what is about the whole archive.
func Of(role string, ofInstitution bool) (list []Permission) {
	for _, line := range table {
		narrow := ofInstitution && role == registry.RoleAuditor && archiveOnly(line.permission)
		if line.roles&roles[role] != 0 && !narrow {
			list = append(list, line.permission)
		}
	}
	return list
}

// archiveOnly reports what an auditor of one institution may not do, because it shows
// others.
func archiveOnly(p Permission) bool { return p == ItemsWorkers || p == SettingsRead }

// All returns every permission there is.
func All() []Permission {
	list := make([]Permission, len(table))
	for i, line := range table {
		list[i] = line.permission
	}
	return list
}

// OfService returns what a token of a service may have: of the whole archive, or of one
// institution.
func OfService(ofInstitution bool) []Permission {
	list := All()
	if ofInstitution {
		list = Of(registry.RoleInstitutionalAdmin, true)
	}
	return slices.DeleteFunc(list, Permission.Personal)
}

// Reads reports whether a permission changes nothing.
func (p Permission) Reads() bool {
	return strings.HasSuffix(string(p), ".read") || p == ReportsDeposits || p == ReportsCosts || p == ItemsWorkers
}

// Personal reports whether a permission is for people only: to request and to approve what
// people answer for, and to say who may do what. A service never gets it.
func (p Permission) Personal() bool {
	return p.Browser() || slices.Contains([]Permission{
		RestorationsRequest, RestorationsApprove, DeletionsRequest, DeletionsCancel, RepairRelease, TokensService,
	}, p)
}

// Browser reports whether all that a permission allows needs a fresh proof of who a person is,
// which no token can give.
func (p Permission) Browser() bool {
	return slices.Contains([]Permission{PlansApprove, DeletionsApprove, UsersWrite, InstitutionsWrite, InstitutionsSettings, SettingsWrite}, p)
}

// Idle are those permissions of a token that it can never use, such as one of an earlier version.
func Idle(t record.Token) (list []string) {
	for _, name := range t.Permissions {
		if p := Permission(name); p.Browser() || t.UserID == 0 && p.Personal() {
			list = append(list, name)
		}
	}
	return list
}
