//! An example of a custom kind: derive it, describe it, give it behavior, and read it with kube-rs.

use std::sync::{Arc, LazyLock};

use kube::api::{Api, ListParams, PostParams};
use kube::{Client, CustomResource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use signpost_apiserver::auth::Authenticator;
use signpost_apiserver::auth::identity::{GROUP_MASTERS, Identity};
use signpost_apiserver::auth::rules::MastersOnly;
use signpost_apiserver::cause::Cause;
use signpost_apiserver::kind::Kind;
use signpost_apiserver::registry::kinds::Kinds;
use signpost_apiserver::registry::{Context, Hooks};
use signpost_apiserver::store::memory::Memory;
use signpost_apiserver::{ApiServer, Settings};
use tokio_util::sync::CancellationToken;

/// A book on a shelf.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, JsonSchema)]
#[kube(group = "library.example", version = "v1", kind = "Book", namespaced)]
struct BookSpec {
    /// The title of the book.
    title: String,
    /// The number of its pages.
    pages: u32,
}

static BOOK: LazyLock<Kind> = LazyLock::new(|| Kind::of::<Book>().selectable_by(&["spec.title"]));

struct Books;

impl Hooks for Books {
    fn validate(&self, _context: &Context<'_>, _old: Option<&Value>, book: &Value) -> Vec<Cause> {
        let pages = &book["spec"]["pages"];
        let fault = (*pages == 0).then(|| Cause::invalid("spec.pages", pages, "a book has pages"));
        fault.into_iter().collect()
    }
}

async fn serve(stop: CancellationToken) -> Client {
    let kinds = Kinds::new([(&*BOOK, Arc::new(Books) as Arc<dyn Hooks>)]);
    let settings = Settings::new(kinds, Arc::new(MastersOnly), Arc::new(Authenticator::default()));
    let server = ApiServer::new(Arc::new(Memory::new()), settings);
    let running = server.clone();
    tokio::spawn(async move { running.run(stop).await });
    server.ready().await;
    // Behind a listener, a token or a certificate identifies the sender of a request. In the process, an extension does.
    let librarian = Identity { user: "librarian".to_owned(), groups: vec![GROUP_MASTERS.to_owned()] };
    Client::new(server.router().layer(axum::Extension(librarian)), "default")
}

#[tokio::test]
async fn a_kind_of_ones_own_is_served_to_kube_rs() {
    let stop = CancellationToken::new();
    let client = serve(stop.clone()).await;
    let books: Api<Book> = Api::default_namespaced(client.clone());
    let book = |title: &str, pages| Book::new(&title.to_lowercase(), BookSpec { title: title.to_owned(), pages });
    let made = books.create(&PostParams::default(), &book("Emma", 474)).await.expect("it is created");
    assert!(made.metadata.uid.is_some() && made.metadata.generation == Some(1));
    books.create(&PostParams::default(), &book("Persuasion", 249)).await.expect("it is created");

    let refused = books.create(&PostParams::default(), &book("Blank", 0)).await.expect_err("it has no pages");
    let kube::Error::Api(status) = refused else { panic!("{refused}") };
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
    assert!(status.message.ends_with("spec.pages: Invalid value: 0: a book has pages"), "{}", status.message);

    let found = books.list(&ListParams::default().fields("spec.title=Emma")).await.expect("a list");
    assert_eq!(found.items.iter().map(|book| book.spec.pages).collect::<Vec<_>>(), [474]);
    let groups = client.list_api_groups().await.expect("discovery");
    assert!(groups.groups.iter().any(|group| group.name == "library.example"));
    stop.cancel();
}
