// Native [LIBRARY]: a Java program; with a library it uses CUDA through it, else only threads and a child of Java's own.
public class Native {
    static native long useCuda();

    public static void main(String[] arguments) throws Exception {
        long[] sum = new long[1];
        Thread thread = new Thread(() -> { for (int i = 0; i < 8; i++) sum[0] += i * i; });
        thread.start();
        thread.join();
        System.out.println("sum " + sum[0]);
        if (arguments.length > 0) {
            System.load(arguments[0]);
            System.out.println("launches " + useCuda());
        }
        Process child = new ProcessBuilder("echo", "child").redirectErrorStream(true).start();
        System.out.print(new String(child.getInputStream().readAllBytes()));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> System.out.println("hook")));
        System.exit(9);
    }
}
