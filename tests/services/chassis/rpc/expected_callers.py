"""Lists every method with the identities that may call it."""

CALLER = "caller/reports"
EDGE, ADMIN, PROGRAMS = {"edge"}, {"admin"}, {CALLER}
CONSOLES = {"console", "operator-console"}
OPERATORS = {"admin", "operator-console"}
# Of what an account's owner may read.
OWNERS = {"admin", *CONSOLES}
WITH_USERS = {"admin", *CONSOLES}
READERS = {"edge", "admin", *CONSOLES}
PAYMENTS = {"payments"}
# Servers, which also call metering.
AUTH, ROUTER = {"auth"}, {"router"}
NAMES = sorted(PROGRAMS | READERS | PAYMENTS | AUTH | ROUTER)

EXPECTED: dict[str, dict[str, set[str]]] = {
    "legato.auth.v1.AuthService": {
        **dict.fromkeys(["Verify", "VerifyCaller", "Watch", "FindRefusedKeys"], EDGE),
        "ListCallerKeys": EDGE | ADMIN,
        **dict.fromkeys(["StartMaintenance", "EndMaintenance", "GetMaintenance"], ADMIN),
    },
    "legato.chat.v1.ChatService": dict.fromkeys(
        ["Complete", "Stream", "CountTokens", "ListModels", "GetUsage", "GetRequest"], PROGRAMS
    ),
    "legato.auth.v1.AccountAdminService": {
        "CreateAccount": OPERATORS,
        "GetAccount": OWNERS,
        "ListAccounts": OPERATORS,
        "UpdateAccount": OWNERS,
        "SuspendAccount": OPERATORS,
        "ResumeAccount": OPERATORS,
        **dict.fromkeys(
            [
                "ListMembers",
                "InviteMember",
                "CancelInvitation",
                "ChangeMemberRole",
                "RemoveMember",
                "CreatePlaygroundToken",
                "ListMyKeys",
            ],
            CONSOLES,
        ),
        **dict.fromkeys(["DeleteUser", "CloseAccount", "EndMemberships"], WITH_USERS),
    },
    "legato.auth.v1.KeyAdminService": {
        "CreateKey": OWNERS,
        "RotateKey": OWNERS,
        "ListKeys": OWNERS,
        "RenameKey": OWNERS,
        "UpdateKey": OWNERS,
        "RevokeKey": OWNERS,
        "CountKeysByPepper": OPERATORS,
        "GetKey": OWNERS,
        "SetKeySpendLimits": OWNERS,
        **dict.fromkeys(["GrantCaller", "RevokeCaller", "ListCallers"], OPERATORS),
    },
    "legato.auth.v1.SignInService": dict.fromkeys(
        [
            "StartPasskeySignIn",
            "SignIn",
            "GetInvitation",
            "AcceptInvitation",
            "ResolveSession",
            "StepUp",
            "SignOut",
            "GetSignInMethods",
            "SendSignInLink",
            "StartOidcSignIn",
            "FinishOidcSignIn",
        ],
        CONSOLES,
    ),
    "legato.auth.v1.UserService": dict.fromkeys(
        [
            "UpdateUser",
            "StartPasskeyRegistration",
            "FinishPasskeyRegistration",
            "RenamePasskey",
            "RemovePasskey",
            "GenerateRecoveryCodes",
            "ListSessions",
            "EndSessions",
            "KeepResult",
            "TakeResult",
            "GetCredentials",
            "SetPassword",
            "RemovePassword",
            "StartTotp",
            "SetTotp",
            "StartOidcLink",
            "RemoveOidcIdentity",
            "SendStepUpCode",
        ],
        CONSOLES,
    ),
    "legato.auth.v1.UserAdminService": dict.fromkeys(
        [
            "CreateUser",
            "ListUsers",
            "CreateSignInLink",
            "DisableUser",
            "SetOperator",
        ],
        OPERATORS,
    ),
    "legato.auth.v1.AuditService": {
        "ListAuditEvents": OWNERS,
        "VerifyAuditEvents": OPERATORS,
        "RecordOperatorAction": OPERATORS,
    },
    "legato.router.v1.RouterService": {
        "Chat": EDGE,
        "Exchange": EDGE,
        "ListModels": READERS,
        "CountTokens": EDGE | ADMIN,
    },
    "legato.router.v1.RouteAdminService": {
        "ReloadRoutes": OPERATORS,
        "ListTargets": OPERATORS,
        "ListOutcomes": OPERATORS,
        "DiffRoutes": ADMIN,
        "ResumeCanary": ADMIN,
    },
    "legato.router.v1.GroundingAdminService": {
        "AddNote": WITH_USERS,
        "ListNotes": WITH_USERS,
        "RemoveNote": WITH_USERS,
        "AddAttachment": WITH_USERS,
        "ListAttachments": WITH_USERS,
        "RemoveAttachment": WITH_USERS,
        "UpdateNote": WITH_USERS,
        "RemoveAllNotes": WITH_USERS,
        "PreviewGrounding": WITH_USERS,
        "GetGroundingConfig": WITH_USERS,
    },
    "legato.metering.v1.MeteringService": {
        "Admit": EDGE,
        "Correct": EDGE,
        "Reserve": EDGE,
        "Extend": EDGE,
        "Settle": EDGE,
        "Void": EDGE,
        "Checkpoint": EDGE,
        "ReportFailures": EDGE,
        "Exchange": EDGE,
        "ListUsage": READERS,
        "GetBalance": READERS,
        "GetRequest": READERS,
    },
    "legato.metering.v1.CreditAdminService": {
        "BookUnmatched": ADMIN,
        "GrantCredits": OPERATORS,
        "AdjustCredits": OPERATORS,
        "ListBalances": OPERATORS,
        "ListClosings": OPERATORS,
        "ListCredits": OWNERS,
        "Audit": OPERATORS,
    },
    "legato.metering.v1.StatementService": dict.fromkeys(
        ["ListLedgerEntries", "ListLedgerDays", "ListRequests", "ListPrices", "AuditAccount"], OWNERS
    ),
    "legato.metering.v1.ReportService": {"GetReport": OPERATORS},
    "legato.metering.v1.ChatOutcomeService": {"GetChatOutcomes": OWNERS},
    "legato.auth.v1.NoticeService": dict.fromkeys(
        [
            "GetNoticeSettings",
            "SetMutedKinds",
            "SetOwnMail",
            "AddWebhook",
            "RemoveWebhook",
            "ListNotices",
            "ResendNotice",
            "SendTestNotice",
        ],
        OWNERS,
    )
    | {"ListDeadLetters": OPERATORS},
    "legato.metering.v1.NoticeThresholdService": dict.fromkeys(["GetLowBalance", "SetLowBalance"], OWNERS),
    "legato.metering.v1.ModelShareService": {"RenewShares": ROUTER},
    "legato.metering.v1.StagedFileService": {"ReportRoutes": ROUTER},
    "legato.metering.v1.OutboxService": dict.fromkeys(["ListPending", "Acknowledge"], AUTH),
    "legato.metering.v1.SpendLimitService": {
        **dict.fromkeys(["ListSpendLimits", "SetSpendLimits"], OWNERS),
        "LimitKey": AUTH,
        "RecountSpends": ADMIN,
    },
    "legato.metering.v1.PaymentBookingService": dict.fromkeys(["BookPayment", "OpenAccount"], PAYMENTS),
    "legato.payments.v1.PaymentService": dict.fromkeys(
        ["GetPaymentOptions", "CreateCheckout", "GetCheckout", "ReceiveEvent"], CONSOLES
    )
    | dict.fromkeys(["ListPayments", "BookPayment"], ADMIN),
    "grpc.health.v1.Health": {"Check": PROGRAMS | READERS | PAYMENTS},
    "grpc.reflection.v1.ServerReflection": {"ServerReflectionInfo": PROGRAMS | ADMIN},
    "grpc.reflection.v1alpha.ServerReflection": {"ServerReflectionInfo": PROGRAMS | ADMIN},
}
