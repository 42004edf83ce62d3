//! Limits on one user's share of the server, without effect on other users.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::Request;
use tower::ServiceExt;

use crate::support::{ADMIN_TOKEN, PATIENCE, ROUTES, Server, TOKEN, route, version};

async fn send(server: &Server, token: &str, method: &str, path: &str, body: Body) -> Response {
    let request = Request::builder().method(method).uri(path).header("authorization", format!("Bearer {token}"));
    let request = request.header("content-type", "application/json").body(body).expect("a request");
    server.api.router().oneshot(request).await.expect("routers do not fail")
}

/// Returns a body that never arrives.
fn nothing() -> Body {
    Body::from_stream(futures::stream::pending::<Result<Bytes, std::convert::Infallible>>())
}

#[tokio::test]
async fn bodies_that_do_not_arrive_take_no_more_than_their_users_share() {
    let server = Server::start().await;
    let (router, path) = (server.api.router(), ROUTES);
    let (reported, mut refused) = tokio::sync::mpsc::unbounded_channel();
    let mut senders = tokio::task::JoinSet::new();
    for _ in 0..2_100 {
        let (router, reported) = (router.clone(), reported.clone());
        senders.spawn(async move {
            let request = Request::post(path).header("authorization", format!("Bearer {TOKEN}")).body(nothing());
            let response = router.oneshot(request.expect("a request")).await.expect("routers do not fail");
            let _ = reported.send(response.status().as_u16());
        });
    }
    for _ in 0..2_100 - 128 {
        let status = tokio::time::timeout(PATIENCE, refused.recv()).await.expect("in time");
        assert_eq!(status, Some(429), "beyond the user's share");
    }
    assert_eq!(send(&server, ADMIN_TOKEN, "GET", ROUTES, Body::empty()).await.status(), 200, "another user");
    server.post(ROUTES, &route("ours")).await.expect(201);
    senders.shutdown().await;
    assert_eq!(send(&server, TOKEN, "GET", ROUTES, Body::empty()).await.status(), 200, "the share is free again");
}

/// More users than it takes to hold all that is worked on at once, none of them over the own share.
#[tokio::test]
async fn bodies_that_do_not_arrive_hold_up_no_work() {
    let server = Server::start().await;
    let (reported, mut asked) = tokio::sync::mpsc::unbounded_channel();
    let mut senders = tokio::task::JoinSet::new();
    for number in 0..1_200 {
        let (router, reported) = (server.api.router(), reported.clone());
        let body = futures::stream::poll_fn(move |_| {
            let _ = reported.send(());
            std::task::Poll::<Option<Result<Bytes, std::convert::Infallible>>>::Pending
        });
        let request = Request::post(ROUTES)
            .header("authorization", format!("Bearer {ADMIN_TOKEN}"))
            .header("impersonate-user", format!("user-{}", number % 12))
            .header("impersonate-group", "signpost:tenant:default");
        let request = request.body(Body::from_stream(body)).expect("a request");
        senders.spawn(async move { router.oneshot(request).await });
    }
    for _ in 0..1_200 {
        tokio::time::timeout(PATIENCE, asked.recv()).await.expect("in time").expect("each body is requested");
    }
    let list = send(&server, TOKEN, "GET", ROUTES, Body::empty());
    assert_eq!(tokio::time::timeout(PATIENCE, list).await.expect("in time").status(), 200);
    senders.shutdown().await;
}

#[tokio::test]
async fn a_user_has_a_share_of_the_watches() {
    let server = Server::start().await;
    let list = server.get(ROUTES).await.expect(200);
    let path = format!("{ROUTES}?watch=true&resourceVersion={}", version(&list));
    let mut watches = Vec::new();
    for _ in 0..1_250 {
        let watch = send(&server, TOKEN, "GET", &path, Body::empty()).await;
        assert_eq!(watch.status(), 200);
        watches.push(watch);
    }
    assert_eq!(send(&server, TOKEN, "GET", &path, Body::empty()).await.status(), 429);
    assert_eq!(send(&server, ADMIN_TOKEN, "GET", &path, Body::empty()).await.status(), 200, "another user");
    assert_eq!(
        server.open(Some(crate::support::admin()), "GET", &path, &[], Vec::new()).await.status(),
        200,
        "our own"
    );
    assert_eq!(send(&server, TOKEN, "GET", ROUTES, Body::empty()).await.status(), 200, "requests have their own");
    watches.pop();
    assert_eq!(send(&server, TOKEN, "GET", &path, Body::empty()).await.status(), 200, "one is free again");
}
